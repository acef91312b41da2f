"""The node in trouble: cut off, without Redis or room, with strays about."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import OperationalError

from cluster.actor import Actor
from cluster.drivers.identity import started_at
from cluster.drivers.lock import file_lock
from cluster.drivers.spawn import environment_build, spawn
from cluster.health import Process
from cluster.models import Replica
from cluster.services import (
    node_reconcile,
    replica_process,
    replica_running_set,
)
from cluster.services.launch import launch_prepare
from tests import services
from tests.cluster.conftest import Fleet, disk_fill, process, record

pytestmark = pytest.mark.django_db(transaction=True)


def pid_of(replica: Replica) -> int:
    replica.refresh_from_db()
    assert replica.pid is not None
    return replica.pid


def runs(replica: Replica) -> bool:
    return process(replica).state is Process.RUNNING


def alive(pid: int) -> bool:
    return started_at(pid) is not None


def test_a_process_that_nobody_recorded_is_ended(fleet: Fleet) -> None:
    """As left by a worker that was cut off between starting and recording."""
    replica = fleet.replica()
    files = fleet.files()
    stray = spawn(
        command=["/bin/sleep", "300"],
        environment=environment_build(
            replica_id=replica.id, owner=files.owner, start="lost"
        ),
        folder=files.folder,
        log_file=files.log(replica.id),
        exit_file=files.exit("elsewhere"),
    )
    foreign = spawn(
        command=["/bin/sleep", "300"],
        environment=environment_build(
            replica_id=replica.id, owner="/another#local", start="theirs"
        ),
        folder=files.folder,
        log_file=files.log(replica.id),
        exit_file=files.exit("foreign"),
    )
    try:
        fleet.until(lambda: not alive(stray.pid))
        assert alive(foreign.pid) and alive(pid_of(replica))
    finally:
        os.kill(foreign.pid, signal.SIGKILL)


def test_children_live_and_die_with_their_replica(fleet: Fleet) -> None:
    script = "setsid sleep 300 & sleep 301 & echo $!; wait"
    replica = fleet.replica(command=f"/bin/bash -c '{script}'")
    node_reconcile(node=fleet.node)
    leader = psutil.Process(pid_of(replica))
    fleet.until(lambda: len(leader.children(recursive=True)) == 2)
    children = leader.children(recursive=True)
    node_reconcile(node=fleet.node)
    assert all(alive(child.pid) for child in children)
    leader.kill()
    fleet.until(lambda: not any(alive(child.pid) for child in children))


def test_a_start_that_cannot_be_recorded_leaves_no_process(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = fleet.replica()
    pids = []
    original = spawn

    def and_the_database_goes_away(**arguments: Any) -> Any:
        identity = original(**arguments)
        pids.append(identity.pid)

        def away(*_: object, **__: object) -> int:
            raise OperationalError("gone")

        monkeypatch.setattr("django.db.models.query.QuerySet.update", away)
        return identity

    monkeypatch.setattr(replica_process, "spawn", and_the_database_goes_away)
    with pytest.raises(OperationalError):
        node_reconcile(node=fleet.node)
    monkeypatch.undo()
    with suppress(psutil.NoSuchProcess):
        psutil.wait_procs([psutil.Process(pids[0])], timeout=5)
    assert not alive(pids[0])
    fleet.until(lambda: runs(replica))


def test_a_replica_stopped_while_it_starts_leaves_no_process(
    fleet: Fleet, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = fleet.replica()
    pids = []
    original = spawn

    def and_somebody_stops_it(**arguments: Any) -> Any:
        identity = original(**arguments)
        pids.append(identity.pid)
        replica_running_set(replica=replica, running=False, actor=actor)
        return identity

    monkeypatch.setattr(replica_process, "spawn", and_somebody_stops_it)
    node_reconcile(node=fleet.node)
    assert pids
    # A killed process is gone when the kernel has come to it, not before.
    fleet.until(lambda: process(replica).state is Process.STOPPED)
    fleet.until(lambda: not alive(pids[0]))


def test_one_broken_replica_does_not_stop_the_others(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = fleet.version(params={"command": "/bin/sleep 300"})
    broken, sound = fleet.replica(version), fleet.replica(version)
    original = launch_prepare

    def prepare(replica: Replica, **rest: Any) -> Any:
        if replica.id == broken.id:
            raise RuntimeError("a defect")
        return original(replica, **rest)

    monkeypatch.setattr(replica_process, "launch_prepare", prepare)
    node_reconcile(node=fleet.node)
    assert runs(sound)
    axis = process(broken)
    assert (axis.state, axis.reason) == (Process.FAILED, "node_error")
    assert "a defect" in axis.detail
    node_reconcile(node=fleet.node)
    assert process(broken).since == axis.since


def test_trouble_of_the_node_never_takes_a_living_replica_down(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = fleet.replica()
    node_reconcile(node=fleet.node)
    axis = process(replica)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replica_process, "log_trim", full)
    monkeypatch.setattr(replica_process, "notes_write", full)
    fleet.files().notes(replica.id).unlink()
    node_reconcile(node=fleet.node)
    assert alive(pid_of(replica))
    monkeypatch.undo()
    node_reconcile(node=fleet.node)
    assert process(replica) == axis


def test_only_one_pass_is_at_work_on_a_node(fleet: Fleet) -> None:
    replica = fleet.replica()
    with file_lock(fleet.files().lock("reconcile")):
        assert node_reconcile(node=fleet.node) is None
    assert node_reconcile(node=fleet.node) is not None
    assert runs(replica)


def test_without_redis_processes_start_and_their_states_are_written_later(
    fleet: Fleet, valkey_server: services.Valkey
) -> None:
    replica = fleet.replica()
    valkey_server.kill()
    try:
        done = node_reconcile(node=fleet.node)
        assert done is not None and done.started == [replica.id]
        pid = pid_of(replica)
    finally:
        valkey_server.start()
    assert record(replica).process is None
    node_reconcile(node=fleet.node)
    assert runs(replica) and pid_of(replica) == pid


def test_a_full_disk_stops_no_replica_and_is_told_where_one_cannot_start(
    fleet: Fleet, small_disk: Path
) -> None:
    version = fleet.version(params={"command": "/bin/sleep 300"})
    one, other = fleet.replica(version), fleet.replica(version)
    node_reconcile(node=fleet.node)
    late = fleet.replica(version)
    # Notes that are lost do not make it a stopped replica, either.
    fleet.files().notes(other.id).unlink()
    ballast = disk_fill(small_disk)
    node_reconcile(node=fleet.node)
    assert runs(one) and runs(other)
    axis = process(late)
    assert (axis.state, axis.reason) == (Process.FAILED, "disk_full")
    assert axis.detail.endswith("No space left on device.")
    late.refresh_from_db()
    assert late.pid is None
    ballast.unlink()
    fleet.until(lambda: runs(late))
    assert runs(one) and runs(other)
