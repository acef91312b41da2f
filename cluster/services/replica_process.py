"""One step for the process of one replica, on the node that runs it."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Collection

import msgspec
import redis
from django.conf import settings

from cluster import presence
from cluster.actor import SYSTEM
from cluster.drivers import decision
from cluster.drivers.checksum import ChecksumCache
from cluster.drivers.decision import Act, Seen, Wanted
from cluster.drivers.files import NodeFiles
from cluster.drivers.identity import (
    Identity,
    began_at,
    group_signal,
    is_alive,
    reap,
)
from cluster.drivers.limits import cgroup_overrun
from cluster.drivers.notes import Notes, notes_read, notes_write
from cluster.drivers.replica_log import log_size, log_tail, log_trim
from cluster.drivers.spawn import SpawnFailed, exit_wait, spawn
from cluster.engines import ArtifactMissing, LaunchRefused, engine_get
from cluster.health import Process, ProcessAxis
from cluster.health.node import CLOCK_OFF_S
from cluster.models import Replica
from cluster.services.artifacts import Unverified
from cluster.services.launch import Launch, launch_prepare
from cluster.services.replicas import replica_address_set

_SIGNALS = {Act.TERMINATE: signal.SIGTERM, Act.KILL: signal.SIGKILL}


class Surroundings(msgspec.Struct, frozen=True):
    """What a step needs of its node; ``ports`` and ``pids`` are those of
    its other replicas.

    ``shutting_down`` stops every process, whatever is wanted for the time after.
    """

    files: NodeFiles
    checksums: ChecksumCache
    ports: Collection[int]
    pids: Collection[int] = ()
    shutting_down: bool = False
    disk_is_scarce: bool = False


def identity_of(replica: Replica) -> Identity | None:
    """The process on the replica's row, which need not live any more."""
    if replica.pid is None or replica.pid_started is None:
        return None
    return Identity(replica.pid, replica.pid_started, replica.boot_id)


def notes_of(replica: Replica, files: NodeFiles) -> Notes:
    """What was noted of the process on the row; nothing, if of another one.

    Someone who is cut off between writing the row and the notes leaves such notes.
    """
    notes = notes_read(files.notes(replica.id))
    return notes if notes.pid == (replica.pid or 0) else Notes()


def process_step(replica: Replica, around: Surroundings) -> ProcessAxis:
    """Bring the process one step nearer to what is wanted; its axis afterwards."""
    files = around.files
    notes = notes_of(replica, files)
    now = round(time.time(), 3)
    seen = _seen(replica, notes, files, now)
    step = decision.decide(_wanted(replica, around), seen, now)
    notes = msgspec.structs.replace(
        notes,
        axis=step.axis,
        pid=replica.pid or 0,
        tried_for=replica.started_for if seen.alive else notes.tried_for,
    )
    if step.act is Act.START:
        if trouble := _unwritable(files, replica):
            # Not to be noted either: a start would forget its pause each time.
            restarts = seen.axis.restarts
            return decision.failed(seen.axis, restarts, "disk_full", trouble, now)
        notes = _start(replica, notes, seen.axis, around)
    elif step.act is not Act.NOTHING and replica.pid is not None:
        group_signal(replica.pid, _SIGNALS[step.act])
    if notes != notes_read(files.notes(replica.id)):
        notes_write(files.notes(replica.id), notes)
    log_trim(files.log(replica.id), disk_is_scarce=around.disk_is_scarce)
    return notes.axis


def _wanted(replica: Replica, around: Surroundings) -> Wanted:
    """A node that shuts down itself waits for nobody longer than usual."""
    if around.shutting_down:
        return Wanted(False, replica.wanted_start)
    running = replica.wanted_running and replica.removed_at is None
    version = replica.version
    grace_s = engine_get(version.engine).stop_grace_s(version.params)
    return Wanted(running, replica.wanted_start, grace_s)


def _unwritable(files: NodeFiles, replica: Replica) -> str:
    """Why the notes of the replica cannot be written; empty where they can."""
    path = files.notes(replica.id)
    try:
        notes_write(path, notes_read(path))
    except OSError as error:
        return f"The node cannot write to {files.folder}: {error.strerror}."
    return ""


def _seen(replica: Replica, notes: Notes, files: NodeFiles, now: float) -> Seen:
    identity = identity_of(replica)
    if identity and is_alive(identity):
        return Seen(
            axis=notes.axis,
            alive=True,
            began=began_at(identity),
            started_for=replica.started_for,
            tried_for=notes.tried_for,
        )
    seen = Seen(axis=notes.axis, alive=False, tried_for=notes.tried_for, ended_at=now)
    if identity is None or notes.axis.state is not Process.RUNNING:
        return seen
    reap(identity.pid)
    exit_ = exit_wait(files.exit(replica.id), identity.pid)
    tail = log_tail(files.log(replica.id), start=notes.log_start)
    text = exit_.text if exit_ else "Ended; how is not on record."
    reason = exit_.reason if exit_ else "unknown"
    if notes.cgroup and cgroup_overrun(notes.cgroup):
        reason, text = "memory_limit", f"It used more memory than memory-mb. {text}"
    return msgspec.structs.replace(
        seen,
        ended_at=round(exit_.at, 3) if exit_ else now,
        reason=reason,
        detail=f"{text} Last lines: {tail}" if tail else text,
    )


def _start(
    replica: Replica, notes: Notes, before: ProcessAxis, around: Surroundings
) -> Notes:
    """Start the process. The notes say how that went, and why if it did not."""
    notes = msgspec.structs.replace(
        notes,
        tried_for=replica.wanted_start,
        start=secrets.token_hex(8),
        clock_offset_s=_clock_offset_s(),
    )
    log_trim(around.files.log(replica.id))
    log_start = log_size(around.files.log(replica.id))
    restarts = notes.axis.restarts
    try:
        launch = launch_prepare(
            replica,
            owner=around.files.owner,
            start=notes.start,
            checksums=around.checksums,
            avoid_ports=around.ports,
            neighbours=around.pids,
        )
        identity = _spawn(replica, launch, around.files)
    except Unverified as wanted:
        since = before if before.state is Process.STARTING else notes.axis
        axis = ProcessAxis(
            Process.STARTING, since.since, "verifying", str(wanted), restarts=restarts
        )
        return msgspec.structs.replace(notes, axis=axis)
    except (ArtifactMissing, LaunchRefused, SpawnFailed) as error:
        axis = _failure(error, before, restarts)
        return msgspec.structs.replace(notes, axis=axis)
    if identity is None:
        return msgspec.structs.replace(notes, axis=before)
    axis = decision.running(began_at(identity), restarts=restarts)
    return msgspec.structs.replace(
        notes,
        axis=axis,
        pid=identity.pid,
        log_start=log_start,
        cgroup=launch.confinement.cgroup,
    )


def _clock_offset_s() -> float:
    """By how much this clock is off; 0 where that is little or not known."""
    try:
        offset_s = presence.clock_offset_s()
    except redis.RedisError:
        return 0.0
    return round(offset_s, 1) if abs(offset_s) > CLOCK_OFF_S else 0.0


def _failure(
    error: ArtifactMissing | LaunchRefused | SpawnFailed,
    before: ProcessAxis,
    restarts: int,
) -> ProcessAxis:
    now = round(time.time(), 3)
    if isinstance(error, ArtifactMissing):
        return decision.failed(before, restarts, "artifact_missing", str(error), now)
    return decision.failed(before, restarts, error.reason, error.detail, now)


def _spawn(replica: Replica, launch: Launch, files: NodeFiles) -> Identity | None:
    """Start it and put it on record; None when it is not wanted any more.

    Neither a process that nobody recorded nor one that nobody wants stays behind.
    """
    replica_address_set(replica=replica, address=launch.address, actor=SYSTEM)
    identity = spawn(
        command=launch.command,
        environment=launch.environment,
        folder=settings.BASE_DIR,
        log_file=files.log(replica.id),
        exit_file=files.exit(replica.id),
        deaths_file=files.deaths,
        cpus=launch.confinement.cpus,
        cgroup=launch.confinement.cgroup,
        nice=launch.confinement.nice,
    )
    row = {
        "pid": identity.pid,
        "pid_started": identity.started,
        "boot_id": identity.boot_id,
        "started_for": replica.wanted_start,
    }
    recorded = 0
    try:
        recorded = Replica.objects.filter(
            pk=replica.pk, wanted_running=True, removed_at__isnull=True
        ).update(**row)
    finally:
        if not recorded:
            group_signal(identity.pid, signal.SIGKILL)
    if not recorded:
        return None
    for name, value in row.items():
        setattr(replica, name, value)
    return identity
