"""What a node's worker does beside its tasks.

Celery tells when the worker is ready. One thread of its main process then sends a
heartbeat every ten seconds, whatever the tasks are busy with; another hears of each
process that ends, and has it looked at. Nothing here touches the database after the
start, so a database that is away silences no node.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from celery.signals import worker_ready, worker_shutdown
from django.conf import settings
from django.db import DatabaseError, connections

from cluster import presence
from cluster.drivers.files import NodeFiles
from cluster.drivers.machine import facts_read
from cluster.health.node import HEARTBEAT_S, NodeFacts
from cluster.models import Node

log = logging.getLogger(__name__)

_QUEUE = "node."
# After a heartbeat that Redis did not take: it may be back long before ten seconds.
_AGAIN_S = 1.0


def node_facts(host: str) -> NodeFacts:
    """The facts of this machine; asks Redis for the time."""
    return facts_read(
        host=host,
        data_dir=Path(settings.DATA_DIR),
        sluice_version=settings.VERSION,
        clock_offset_s=presence.clock_offset_s(),
    )


class Heart(threading.Thread):
    """Sends the heartbeats of one node until it is ended."""

    def __init__(self, name: str, host: str, files: NodeFiles) -> None:
        super().__init__(name=f"heart-{name}", daemon=True)
        self._node = name
        self._host = host
        self._holder = files.holder()
        self._end = threading.Event()
        self._unheard = False

    def run(self) -> None:
        while not self._end.wait(self._beat()):
            pass

    def end(self) -> None:
        self._end.set()
        self.join(timeout=5)

    def _beat(self) -> float:
        """One heartbeat; the seconds until the next."""
        try:
            facts = node_facts(self._host)
            held = presence.presence_beat(self._node, holder=self._holder, facts=facts)
        except (redis.RedisError, OSError) as error:
            if not self._unheard:
                # Each outage is told once.
                log.warning("no heartbeat of node %s: %s", self._node, error)
            self._unheard = True
            return _AGAIN_S
        except Exception:
            # The thread must outlive a defect: without it the node seems lost.
            log.exception("no heartbeat of node %s", self._node)
            return HEARTBEAT_S
        if self._unheard:
            log.info("node %s is heard again", self._node)
            self._unheard = False
        if held is not None:
            self._give_way(held)
        return HEARTBEAT_S

    def _give_way(self, held: presence.Held) -> None:
        """Two workers of one name would start every replica twice."""
        host = held.facts.host if held.facts else "?"
        log.error(
            "node %s was replaced by the one at %s: this worker ends, "
            "its replicas run on until they are ended here by hand",
            self._node,
            host,
        )
        self._end.set()
        os.kill(os.getpid(), signal.SIGTERM)


class Deaths(threading.Thread):
    """Hears from the keepers when a process ends, until it is ended itself."""

    def __init__(self, name: str, files: NodeFiles) -> None:
        super().__init__(name=f"deaths-{name}", daemon=True)
        self._node = name
        with suppress(FileExistsError):
            os.mkfifo(files.deaths, 0o600)
        # Open for writing too: a pipe whose last writer left would be at its end.
        self._pipe = os.open(files.deaths, os.O_RDWR)
        self._ended = False

    def run(self) -> None:
        while os.read(self._pipe, 4096) and not self._ended:
            # Tasks import services, which know nothing of workers.
            from cluster.tasks import node_look

            try:
                node_look(self._node)
            except Exception:
                log.exception("an end on node %s is left to the schedule", self._node)

    def end(self) -> None:
        self._ended = True
        os.write(self._pipe, b".")
        self.join(timeout=5)
        os.close(self._pipe)


_threads: list[Heart | Deaths] = []


@worker_ready.connect
def worker_begins(sender: Any, **_: Any) -> None:
    """Start the threads of each node whose queue this worker listens to."""
    queues = sender.app.amqp.queues.consume_from
    for name in (q.removeprefix(_QUEUE) for q in queues if q.startswith(_QUEUE)):
        files = NodeFiles(Path(settings.DATA_DIR), name)
        files.create()
        for thread in (Heart(name, _host_of(name), files), Deaths(name, files)):
            thread.start()
            _threads.append(thread)


def _host_of(name: str) -> str:
    """Where the node is reached, as far as the database tells now."""
    try:
        return Node.objects.values_list("host", flat=True).get(name=name)
    except (DatabaseError, Node.DoesNotExist):
        return ""
    finally:
        connections.close_all()


@worker_shutdown.connect
def worker_ends(**_: Any) -> None:
    while _threads:
        _threads.pop().end()
