"""The node makes its processes what people want them to be."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import redis
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db.models import Q

from cluster import live
from cluster.drivers import decision
from cluster.drivers.checksum import ChecksumCache
from cluster.drivers.decision import STOP_GRACE_S
from cluster.drivers.files import NodeFiles
from cluster.drivers.identity import (
    began_at,
    group_signal,
    is_alive,
    marked_processes,
    memory_bytes,
)
from cluster.drivers.limits import cgroup_remove
from cluster.drivers.lock import file_lock
from cluster.drivers.machine import disk_is_scarce
from cluster.drivers.notes import notes_write, published
from cluster.health import Process, ProcessAxis
from cluster.models import Driver, Node, Replica
from cluster.services.launch import port_of
from cluster.services.replica_process import (
    Surroundings,
    identity_of,
    notes_of,
    process_step,
)

log = logging.getLogger(__name__)

# How soon to look at a process that is ending, or so young that it may fail yet.
_ENDING_LOOK_S = 0.3
_YOUNG_LOOK_S = 1.0
_YOUNG_S = 3.0
# Whatever is due later is seen by the schedule.
_LOOK_LIMIT_S = 5.0


class NodePass(NamedTuple):
    """What a pass leaves to its caller.

    ``started`` are the replicas to probe soon. ``look_again_s`` is when the next
    pass has something to do, if that is before the schedule. ``unverified`` says
    that starts wait for ``artifacts_verify``.
    """

    started: list[str]
    look_again_s: float | None
    unverified: bool


def node_reconcile(*, node: Node, shutting_down: bool = False) -> NodePass | None:
    """Start, stop, adopt and replace the processes of this node, one step each.

    To be called on the node itself. None when another pass is at work. One
    replica's trouble never stops the others; a database that does not answer ends
    the pass (``OperationalError``), an absent Redis does not.
    """
    files = NodeFiles(Path(settings.DATA_DIR), node.name)
    files.create()
    with file_lock(files.lock("reconcile")) as alone:
        return _reconcile(node, files, shutting_down) if alone else None


def node_shutdown(*, node: Node, within_s: float = STOP_GRACE_S + 5.0) -> bool:
    """Stop every process of this node and leave what is wanted as it is, so that
    the next reconcile starts them again. False when some would not end in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        done = node_reconcile(node=node, shutting_down=True)
        if done is not None and done.look_again_s is None:
            return True
        time.sleep(_ENDING_LOOK_S)
    return False


def _reconcile(node: Node, files: NodeFiles, shutting_down: bool) -> NodePass:
    replicas = list(
        Replica.objects.filter(driver=Driver.PROCESS, node=node)
        .filter(Q(removed_at__isnull=True) | Q(pk__in=files.noted_ids()))
        .select_related("version__model", "node")
    )
    strays_end(replicas, files)
    checksums = ChecksumCache(files.checksums)
    live_records = _LiveRecords()
    started, looks, unverified = [], [], False
    around = Surroundings(
        files,
        checksums,
        ports=(),
        shutting_down=shutting_down,
        disk_is_scarce=disk_is_scarce(files.data_dir),
    )
    for replica in replicas:
        ports = {port_of(row.address) for row in replicas if row is not replica}
        before = identity_of(replica)
        pids = [row.pid for row in replicas if row is not replica and row.pid]
        axis = _step(replica, msgspec.structs.replace(around, ports=ports, pids=pids))
        offset_s = notes_of(replica, files).clock_offset_s
        live_records.write(replica.id, published(axis, offset_s))
        if axis.state is Process.RUNNING:
            live_records.memory(replica)
        if replica.removed_at and axis.state is Process.STOPPED:
            live_records.forget(replica, files)
        if identity_of(replica) != before:
            started.append(replica.id)
        looks.append(look_again_s(axis, time.time()))
        unverified |= axis.state is Process.STARTING
    look = min((look for look in looks if look is not None), default=None)
    return NodePass(started, look, unverified)


def _step(replica: Replica, around: Surroundings) -> ProcessAxis:
    """The step of one replica; its trouble is written down and stays its own."""
    try:
        return process_step(replica, around)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        log.exception("replica %s could not be reconciled", replica.id)
        notes = notes_of(replica, around.files)
        identity = identity_of(replica)
        if identity and is_alive(identity):
            # It serves, and an error of ours, a full disk say, must not stop it.
            return notes.axis if notes.pid else decision.running(began_at(identity))
        axis = decision.failed(
            notes.axis,
            notes.axis.restarts,
            "node_error",
            f"The node could not do it: {error}.",
            round(time.time(), 3),
        )
        with suppress(OSError):
            notes = msgspec.structs.replace(notes, axis=axis)
            notes_write(around.files.notes(replica.id), notes)
        return axis


def look_again_s(axis: ProcessAxis, now: float) -> float | None:
    """In how many seconds this replica wants the next pass; None: the schedule does."""
    if axis.state is Process.STOPPING:
        return _ENDING_LOOK_S
    if axis.state is Process.RUNNING and now - axis.since < _YOUNG_S:
        return _YOUNG_LOOK_S
    if axis.next_try and axis.next_try - now < _LOOK_LIMIT_S:
        return max(axis.next_try - now, 0.05)
    return None


def strays_end(replicas: Sequence[Replica], files: NodeFiles) -> list[int]:
    """End processes that carry our mark but belong to none of the recorded ones.

    They are left by a worker that was cut off between starting and recording, or
    by a replica that died before its children. Returns their pids.
    """
    sessions, starts = set(), set()
    for replica in replicas:
        identity = identity_of(replica)
        if identity and is_alive(identity):
            sessions.add(identity.pid)
            starts.add(notes_of(replica, files).start)
    starts.discard("")
    ended = []
    for marked in marked_processes(files.owner):
        if marked.session in sessions or marked.start in starts:
            continue
        if is_alive(marked.identity):
            log.warning(
                "ending stray process %d of replica %s",
                marked.identity.pid,
                marked.replica_id,
            )
            group_signal(marked.identity.pid, signal.SIGKILL)
            ended.append(marked.identity.pid)
    return ended


class _LiveRecords:
    """The live records as far as Redis answers; the next pass writes the rest."""

    def __init__(self) -> None:
        self._answers = True

    def write(self, replica_id: str, axis: ProcessAxis) -> None:
        if self._answers:
            try:
                live.axis_write(replica_id, axis)
            except redis.RedisError as error:
                self._away(error)

    def memory(self, replica: Replica) -> None:
        identity = identity_of(replica)
        if not self._answers or identity is None:
            return
        held = memory_bytes(identity)
        if held is not None:
            try:
                live.memory_write(replica.id, held)
            except redis.RedisError as error:
                self._away(error)

    def forget(self, replica: Replica, files: NodeFiles) -> None:
        """Drop all that is known of a removed replica, the notes last."""
        if self._answers:
            try:
                live.record_delete(replica.id)
            except redis.RedisError as error:
                self._away(error)
                return
            if cgroup := notes_of(replica, files).cgroup:
                cgroup_remove(cgroup)
            files.exit(replica.id).unlink(missing_ok=True)
            files.notes(replica.id).unlink(missing_ok=True)

    def _away(self, error: redis.RedisError) -> None:
        self._answers = False
        log.warning("process states are not written, redis is away: %s", error)
