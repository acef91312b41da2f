"""The node: its processes become what is wanted, whatever happens to them."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster import live, presence
from cluster.actor import Actor
from cluster.drivers import decision
from cluster.drivers.identity import boot_id, started_at
from cluster.health import Process, Record
from cluster.models import Replica
from cluster.services import (
    artifacts_verify,
    node_reconcile,
    replica_remove,
    replica_restart,
    replica_running_set,
)
from tests.cluster.conftest import Fleet, process, record

pytestmark = pytest.mark.django_db(transaction=True)


def pid_of(replica: Replica) -> int:
    replica.refresh_from_db()
    assert replica.pid is not None
    return replica.pid


def runs(replica: Replica) -> bool:
    return process(replica).state is Process.RUNNING


def alive(pid: int) -> bool:
    return started_at(pid) is not None


def test_a_wanted_replica_is_started_and_left_alone(fleet: Fleet) -> None:
    replica = fleet.replica()
    done = node_reconcile(node=fleet.node)
    assert done is not None and done.started == [replica.id]
    assert done.look_again_s == 1.0
    pid, axis = pid_of(replica), process(replica)
    assert axis.state is Process.RUNNING and alive(pid)
    assert replica.address.startswith("http://127.0.0.1:")
    number = live.redis_client().get("sluice:replicas#number")
    again = node_reconcile(node=fleet.node)
    assert again is not None and again.started == []
    assert (pid_of(replica), process(replica)) == (pid, axis)
    assert live.redis_client().get("sluice:replicas#number") == number


def test_a_killed_process_is_noticed_told_of_and_replaced(fleet: Fleet) -> None:
    replica = fleet.replica(command="/bin/sh -c 'echo all is well; sleep 300'")
    log = fleet.files().log(replica.id)
    fleet.until(lambda: "well" in log.read_text())
    first, address = pid_of(replica), replica.address
    since = process(replica).since
    os.kill(first, signal.SIGKILL)
    fleet.until(lambda: not runs(replica))
    axis = process(replica)
    assert (axis.state, axis.reason) == (Process.EXITED, "signal")
    assert axis.detail == "Ended by signal 9 (SIGKILL). Last lines: all is well"
    assert axis.next_try == pytest.approx(axis.since + 1.0)
    fleet.until(lambda: runs(replica))
    assert pid_of(replica) != first and alive(pid_of(replica))
    assert replica.address == address
    assert process(replica).since > since
    assert process(replica).restarts == 1


def test_a_process_that_fails_at_once_is_tried_ever_less_often(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision, "PAUSES_S", (0.1, 0.2, 0.4))
    replica = fleet.replica(command="/bin/sh -c 'echo no such device >&2; exit 7'")
    pauses = []
    for restarts in (1, 2, 3, 4):
        fleet.until(
            lambda n=restarts: (  # type: ignore[misc]
                process(replica).state is Process.EXITED
                and process(replica).restarts == n
            )
        )
        axis = process(replica)
        assert axis.reason == "exit_code"
        assert axis.detail == "Exited with code 7. Last lines: no such device"
        pauses.append(round(axis.next_try - axis.since, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.4]


def test_a_stopped_replica_ends_and_stays_so(fleet: Fleet, actor: Actor) -> None:
    replica = fleet.replica()
    node_reconcile(node=fleet.node)
    pid = pid_of(replica)
    replica_running_set(replica=replica, running=False, actor=actor)
    done = node_reconcile(node=fleet.node)
    assert process(replica).state is Process.STOPPING
    assert done is not None and done.look_again_s == 0.3
    fleet.until(lambda: process(replica).state is Process.STOPPED)
    axis = process(replica)
    assert not alive(pid)
    node_reconcile(node=fleet.node)
    assert process(replica) == axis
    replica_running_set(replica=replica, running=True, actor=actor)
    fleet.until(lambda: runs(replica))
    assert process(replica).restarts == 0


def test_a_process_that_ignores_the_request_is_killed(
    fleet: Fleet, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision, "STOP_GRACE_S", 0.3)
    script = "trap : TERM; echo deaf; while :; do sleep 1; done"
    replica = fleet.replica(command=f"/bin/sh -c '{script}'")
    node_reconcile(node=fleet.node)
    log = fleet.files().log(replica.id)
    fleet.until(lambda: "deaf" in log.read_text())
    pid = pid_of(replica)
    replica_running_set(replica=replica, running=False, actor=actor)
    fleet.until(lambda: process(replica).state is Process.STOPPED)
    assert not alive(pid)


def test_a_restart_replaces_the_process_without_a_pause(
    fleet: Fleet, actor: Actor
) -> None:
    replica = fleet.replica()
    node_reconcile(node=fleet.node)
    first = pid_of(replica)
    replica_restart(replica=replica, actor=actor)
    fleet.until(lambda: runs(replica) and pid_of(replica) != first)
    assert not alive(first)
    assert process(replica).restarts == 0


def test_a_removed_replica_is_ended_and_forgotten(fleet: Fleet, actor: Actor) -> None:
    replica = fleet.replica()
    node_reconcile(node=fleet.node)
    pid = pid_of(replica)
    replica_remove(replica=replica, actor=actor)
    fleet.until(lambda: fleet.files().noted_ids() == [])
    assert not alive(pid)
    assert record(replica) == Record()
    assert node_reconcile(node=fleet.node) == ([], None, False)


def test_a_zombie_counts_as_dead(fleet: Fleet) -> None:
    """The recorded process is a child of ours that nobody has waited for."""
    replica = fleet.replica()
    child = subprocess.Popen(["/bin/sleep", "300"])
    Replica.objects.filter(pk=replica.pk).update(
        pid=child.pid,
        pid_started=started_at(child.pid),
        boot_id=boot_id(),
        started_for=1,
    )
    node_reconcile(node=fleet.node)
    assert runs(replica) and pid_of(replica) == child.pid
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    node_reconcile(node=fleet.node)
    assert process(replica).state is Process.EXITED
    assert process(replica).detail == "Ended; how is not on record."
    assert not psutil.pid_exists(child.pid)
    child.returncode = 0


def test_a_process_of_an_earlier_boot_is_not_mistaken_for_ours(fleet: Fleet) -> None:
    replica = fleet.replica()
    Replica.objects.filter(pk=replica.pk).update(
        pid=os.getpid(), pid_started=started_at(os.getpid()), boot_id="before"
    )
    node_reconcile(node=fleet.node)
    assert pid_of(replica) != os.getpid() and runs(replica)


def test_a_missing_artifact_says_what_is_missing_and_when_it_is_tried_again(
    fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "w.gguf"
    version = fleet.version(params={"command": "/bin/sleep 300"}, artifact=str(file))
    replica = fleet.replica(version)
    node_reconcile(node=fleet.node)
    axis = process(replica)
    assert (axis.state, axis.reason) == (Process.FAILED, "artifact_missing")
    assert axis.detail == f"There is no file {file} on this node."
    assert axis.next_try == pytest.approx(axis.since + 1.0)
    fleet.until(lambda: process(replica).restarts == 2)
    assert process(replica).since == axis.since
    file.write_bytes(b"weights")
    fleet.until(lambda: runs(replica))


@pytest.mark.parametrize(
    ("engine", "params", "reason"),
    [
        ("vllm", {}, "no_artifact"),
        ("generic", {}, "no_command"),
        ("generic", {"command": "/no/such/program"}, "spawn_failed"),
        ("generic", {"command": "/bin/true", "env": "SLUICE_X=1"}, "bad_param"),
        ("generic", {"command": "/bin/true", "port": "many"}, "bad_param"),
        ("generic", {"command": "/bin/true", "port": 70_000}, "bad_param"),
    ],
)
def test_what_cannot_be_started_says_why(
    fleet: Fleet, engine: str, params: dict[str, Any], reason: str
) -> None:
    version = fleet.version(engine=engine, params=params)
    replica = fleet.replica(version)
    node_reconcile(node=fleet.node)
    axis = process(replica)
    assert (axis.state, axis.reason) == (Process.FAILED, reason)
    assert axis.detail and axis.next_try > axis.since


def test_a_demanded_port_that_is_taken_is_a_stated_reason(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        replica = fleet.replica(command="/bin/sleep 300", port=port)
        node_reconcile(node=fleet.node)
        axis = process(replica)
        assert (axis.state, axis.reason) == (Process.FAILED, "port_taken")
        assert axis.detail == f"Port {port} on 127.0.0.1 is taken."
    fleet.until(lambda: runs(replica))
    replica.refresh_from_db()
    assert replica.address == f"http://127.0.0.1:{port}"


def test_two_replicas_never_get_the_same_port(fleet: Fleet, actor: Actor) -> None:
    version = fleet.version(params={"command": "/bin/sleep 300"})
    replicas = [fleet.replica(version) for _ in range(3)]
    node_reconcile(node=fleet.node)
    for replica in replicas:
        replica.refresh_from_db()
    assert len({replica.address for replica in replicas}) == 3


def test_a_checksum_is_verified_before_the_start(fleet: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "w.gguf"
    file.write_bytes(b"weights")
    good = hashlib.sha256(b"weights").hexdigest()
    parameters: dict[str, Any] = {"params": {"command": "/bin/sleep 300"}}
    parameters |= {"artifact": str(file), "artifact_sha256": good}
    right = fleet.replica(fleet.version(**parameters))
    wrong = fleet.replica(
        fleet.version("v2", **(parameters | {"artifact_sha256": "0" * 64}))
    )
    done = node_reconcile(node=fleet.node)
    assert done is not None and done.unverified
    for replica in (right, wrong):
        assert process(replica).state is Process.STARTING
        assert process(replica).detail == f"Computing the checksum of {file}."
    since = process(right).since
    node_reconcile(node=fleet.node)
    assert process(right).since == since
    assert artifacts_verify(node=fleet.node)
    assert not artifacts_verify(node=fleet.node)
    done = node_reconcile(node=fleet.node)
    assert done is not None and not done.unverified
    assert runs(right)
    axis = process(wrong)
    assert (axis.state, axis.reason) == (Process.FAILED, "checksum_mismatch")
    assert good in axis.detail and "0" * 64 in axis.detail
    assert wrong.pid is None


def test_a_clock_that_is_off_moves_no_time_that_others_read(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its correction makes no other process of the one that runs."""
    real_now = time.time()
    monkeypatch.setattr(presence, "clock_offset_s", lambda: 3600.0)
    replica = fleet.replica()
    node_reconcile(node=fleet.node)
    axis = process(replica)
    # The clock of this machine is right, so the published time is off instead.
    assert axis.since == pytest.approx(real_now - 3600, abs=5)
    monkeypatch.setattr(presence, "clock_offset_s", lambda: 0.0)
    node_reconcile(node=fleet.node)
    assert process(replica) == axis
    os.kill(pid_of(replica), signal.SIGKILL)
    fleet.until(lambda: process(replica).restarts == 1 and runs(replica))
    assert process(replica).since == pytest.approx(time.time(), abs=10)
