from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser
from typing import Any

import redis
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from cluster import live
from cluster.errors import Refused
from cluster.health import Label
from cluster.models import Node
from cluster.selectors import replica_list, replica_views
from cluster.services import node_shutdown
from console.celery import app as celery_app
from console.children import (
    LOCAL_NODE,
    CannotStart,
    django_specs,
    gateway_specs,
    valkey_socket,
    valkey_spec,
)
from console.env import broker_url
from console.startup import (
    data_dir_held,
    database_prepare,
    ports_check,
    static_prepare,
)
from console.supervisor import Supervisor

# How long the welcome waits for replicas: the demo's first answer should not be
# an error. Larger models go on loading after it.
REPLICAS_START_S = 20.0
_ON_THE_WAY = (Label.REGISTERED, Label.STARTING, Label.LOADING)


class Command(BaseCommand):
    help = "Start everything on this machine, watch it, stop it on Ctrl-C."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--no-demo", action="store_true", help="start without the demo cluster"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.began = time.monotonic()
        # Whatever this instance writes is its user's own.
        os.umask(0o077)
        try:
            with data_dir_held(settings.DATA_DIR):
                ports_check()
                self._run(demo=not options["no_demo"])
        except (CannotStart, Refused) as error:
            raise CommandError(str(error)) from error

    def _say(self, line: str) -> None:
        clock = time.strftime("%H:%M:%S")
        self.stdout.write(f"{clock}  {line}")
        self.stdout.flush()

    def _run(self, *, demo: bool) -> None:
        embedded = not settings.REDIS_URL
        if embedded:
            settings.REDIS_URL = f"unix://{valkey_socket(settings.DATA_DIR)}"
            celery_app.conf.update(broker_url=broker_url(settings.REDIS_URL))
        supervisor = Supervisor(
            log_dir=settings.DATA_DIR / "log",
            environment=child_environment(),
            say=self._say,
        )
        with supervisor.signals():
            try:
                if embedded:
                    supervisor.add([valkey_spec(settings.DATA_DIR)])
                    supervisor.run_until(redis_answers, every_s=0.02)
                if not supervisor.asked_to_stop:
                    self._serve(supervisor, demo=demo)
            finally:
                self._stop(supervisor)
                supervisor.close()

    def _serve(self, supervisor: Supervisor, *, demo: bool) -> None:
        database_prepare()
        call_command("first_start")
        call_command("schedule_install")
        supervisor.add(gateway_specs())
        if demo:
            call_command("demo_seed")
        static_prepare()
        supervisor.add(django_specs())
        supervisor.run_until(self._ready, every_s=0.05)
        patience = time.monotonic() + REPLICAS_START_S
        supervisor.run_until(
            lambda: replicas_started() or time.monotonic() > patience, every_s=0.1
        )
        if not supervisor.asked_to_stop:
            self._welcome()
        supervisor.run_until(lambda: False)

    def _stop(self, supervisor: Supervisor) -> None:
        """Gateways first, while all they need still stands; live state last."""
        children = supervisor.children
        if not children:
            return
        self._say("stopping: open streams get up to 30 s (Ctrl-C again: at once)")
        supervisor.stop([c for c in children if c.name.startswith("gateway-")])
        supervisor.stop([c for c in children if c.name in ("beat", "worker")])
        self._stop_replicas()
        supervisor.stop([c for c in children if c.name != "valkey"])
        supervisor.stop(children)
        self._say("stopped")

    def _stop_replicas(self) -> None:
        """The processes of this machine's node; they start again next time."""
        try:
            node = Node.objects.filter(name=LOCAL_NODE).first()
            if node is not None and not node_shutdown(node=node):
                self._say("some replicas did not end in time")
        except DatabaseError as error:
            self._say(f"replicas were not stopped: {error}")

    def _ready(self) -> bool:
        return all(
            answers(f"http://{bind_text(bind)}/readyz")
            for bind in (settings.CONSOLE_BIND, settings.GATEWAY_BIND)
        )

    def _welcome(self) -> None:
        console = f"http://{bind_text(settings.CONSOLE_BIND)}"
        gateway = f"http://{bind_text(settings.GATEWAY_BIND)}"
        data = settings.DATA_DIR
        lines = [
            "",
            f"Sluice {settings.VERSION} is ready "
            f"({time.monotonic() - self.began:.1f} s).",
            f"  Console   {console}   user admin, password in {data}/admin-password",
            f"  Gateway   {gateway}/v1",
        ]
        if (data / "demo-key").exists():
            lines += [
                f"  Demo key  {data}/demo-key",
                "",
                f"  curl {gateway}/v1/chat/completions \\",
                f'    -H "Authorization: Bearer $(cat {data}/demo-key)" \\',
                '    -H "Content-Type: application/json" \\',
                '    -d \'{"model": "smollm2", "messages": '
                '[{"role": "user", "content": "What is a canary release?"}]}\'',
            ]
        self.stdout.write("\n".join([*lines, "", "Ctrl-C stops all of it.", ""]))
        self.stdout.flush()


def child_environment() -> dict[str, str]:
    """What every process of this instance must agree on, said explicitly."""
    inherited = {k: v for k, v in os.environ.items() if k != "REDIS_URL_FILE"}
    return inherited | {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(settings.BASE_DIR), os.environ.get("PYTHONPATH")])
        ),
        "REDIS_URL": settings.REDIS_URL,
        "SLUICE_DATA_DIR": str(settings.DATA_DIR),
        "SLUICE_CONSOLE_BIND": bind_text(settings.CONSOLE_BIND),
        "SLUICE_GATEWAY_BIND": bind_text(settings.GATEWAY_BIND),
    }


def bind_text(bind: tuple[str, int]) -> str:
    """``host:port`` as it stands in a URL."""
    host, port = bind
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def replicas_started() -> bool:
    """Whether no replica of this machine is still on its way up."""
    mine = replica_list().filter(node__name=LOCAL_NODE, wanted_running=True)
    return not any(
        view.state is None or view.state.label in _ON_THE_WAY
        for view in replica_views(mine)
    )


def redis_answers() -> bool:
    try:
        return bool(live.redis_client().ping())
    except redis.RedisError:
        return False


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False
