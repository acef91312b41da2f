from __future__ import annotations

import fcntl
import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NoReturn

import redis
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection, connections
from django.db.migrations.executor import MigrationExecutor

from cluster.actor import Actor
from cluster.drivers.files import NodeFiles
from cluster.errors import Refused
from cluster.selectors import NodeView, node_list, node_views
from cluster.services import node_claim, node_register
from cluster.services.models import name_check
from cluster.worker import node_facts
from console.env import env_secret

ACTOR = Actor("command", "node join")
# What a node has in common with the rest of the cluster.
_SHARED = ("DATABASE_URL", "REDIS_URL", "SLUICE_SECRET_KEY")


class Command(BaseCommand):
    help = "Make this machine a node of the cluster, or list the nodes."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        join = verbs.add_parser("join", help="register this machine and run its worker")
        join.add_argument("--name", required=True)
        join.add_argument(
            "--host", required=True, help="where gateways reach this machine"
        )
        join.add_argument(
            "--replace", action="store_true", help="take the place of a silent machine"
        )
        join.add_argument("--concurrency", type=int, default=2, help="tasks at once")
        verbs.add_parser("list", help="every node with its state")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["verb"] == "list":
                self._list()
            else:
                self._join(**options)
        except (Refused, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        except redis.RedisError as error:
            raise CommandError(f"REDIS_URL cannot be used: {error}.") from error
        except DatabaseError as error:
            text = " ".join(str(error).split())
            raise CommandError(f"DATABASE_URL cannot be used: {text}") from error
        except OSError as error:
            text = f"The data directory {settings.DATA_DIR} cannot be used: {error}."
            raise CommandError(text) from error

    def _list(self) -> None:
        for view in node_views(node_list()):
            self.stdout.write(_line(view))

    def _join(
        self, *, name: str, host: str, replace: bool, concurrency: int, **_: Any
    ) -> NoReturn:
        """Never returns: the process becomes the node's worker."""
        os.umask(0o077)
        name_check(name)
        _environment_check()
        _database_check()
        files = NodeFiles(Path(settings.DATA_DIR), name)
        files.create()
        _worker_lock(files, name)
        facts = node_facts(host)
        node_claim(name=name, holder=files.holder(), facts=facts, replace=replace)
        node = node_register(name=name, host=host, actor=ACTOR)
        self.stdout.write(f"Node {name} at {host}: its worker starts.")
        self.stdout.flush()
        connections.close_all()
        _worker_become(node.queue, name, concurrency)


def _line(view: NodeView) -> str:
    words = [view.node.name, view.node.host, view.state or "unknown"]
    if view.age_s is not None:
        words.append(f"last heartbeat {view.age_s:.0f} s ago")
    if view.facts and view.facts.clock_is_off:
        words.append(f"clock off by {view.facts.clock_offset_s:.0f} s")
    return "  ".join(words)


def _environment_check() -> None:
    for name in _SHARED:
        if not env_secret(name):
            raise CommandError(
                f"Set {name} (or {name}_FILE) to what the rest of the cluster uses."
            )


def _database_check() -> None:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise CommandError(
            "The database that DATABASE_URL names has not this release's tables: "
            "start this release's console on it first."
        )


def _worker_lock(files: NodeFiles, name: str) -> None:
    """Held until this process ends, also when it becomes another program; processes
    that it starts do not have it."""
    file = os.open(files.lock("worker"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CommandError(
            f"A worker of the node {name} runs on this machine already."
        ) from None
    os.set_inheritable(file, True)


def _worker_become(queue: str, name: str, concurrency: int) -> NoReturn:
    os.environ["SLUICE_DATA_DIR"] = str(settings.DATA_DIR)
    os.chdir(settings.BASE_DIR)
    command = [sys.executable, "-m", "celery", "-A", "console", "--quiet", "worker"]
    command += ["--queues", queue, "--hostname", f"{name}@%h", "--loglevel", "INFO"]
    command += ["--concurrency", str(concurrency)]
    # Workers that talk to each other compare their clocks.
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    os.execv(sys.executable, command)
