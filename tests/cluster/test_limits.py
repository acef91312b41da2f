"""Limits of processes, how their ends are told, and the codes for what went wrong."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster import tasks, worker
from cluster.drivers import limits
from cluster.drivers.limits import (
    Limits,
    cgroup_base,
    cgroup_overrun,
    cgroup_prepare,
    cpus_choose,
    limits_read,
)
from cluster.drivers.spawn import SpawnFailed
from cluster.health import Process
from cluster.health.reasons import ProcessReason
from cluster.models import Replica
from cluster.services import node_reconcile
from tests.cluster.conftest import SLEEP, Fleet, process

CONFINED = {"command": SLEEP, "memory-mb": 512}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, Limits()),
        ({"cpus": 2, "memory-mb": 4096, "nice": 5}, Limits(2, 4096, 5)),
        ({"cpus": 0}, "1 to 4096, not 0"),
        ({"cpus": 1.5}, "whole number"),
        ({"cpus": True}, "whole number"),
        ({"memory-mb": "4G"}, "whole number"),
        ({"memory-mb": 1}, "16 to"),
        ({"nice": -5}, "0 to 19, not -5"),
    ],
)
def test_limits_are_read_or_refused_by_name(
    params: dict[str, Any], expected: Limits | str
) -> None:
    if isinstance(expected, Limits):
        assert limits_read(params) == expected
        return
    with pytest.raises(SpawnFailed, match=expected) as failure:
        limits_read(params)
    assert failure.value.reason == "bad_param"


def test_more_cpus_than_there_are_is_refused() -> None:
    with pytest.raises(SpawnFailed, match="this node has") as failure:
        cpus_choose(4096, [])
    assert failure.value.reason == "limit_unenforceable"


def group_tree(folder: Path, control: str = "cpu memory") -> Path:
    """Files as the kernel shows them for a worker in a group of its own. No kernel
    stands behind them: only what is read and written is tested here."""
    (folder / "sluice.slice" / "worker").mkdir(parents=True)
    (folder / "cgroup.controllers").write_text("cpu memory pids")
    (folder / "sluice.slice" / "cgroup.subtree_control").write_text(control)
    own = folder / "own"
    own.write_text("0::/sluice.slice/worker\n")
    return own


def test_a_memory_group_is_made_beside_the_workers_own(tmp_path: Path) -> None:
    base = cgroup_base(root=tmp_path, own=group_tree(tmp_path))
    assert base == tmp_path / "sluice.slice"
    group = cgroup_prepare(base, "sluice-x", 64)
    assert (group / "memory.max").read_text() == str(64 * 1024 * 1024)
    assert (group / "memory.swap.max").read_text() == "0"
    assert not cgroup_overrun(str(group))
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n")
    assert cgroup_overrun(str(group))


def test_where_memory_cannot_be_limited_it_is_said_why(tmp_path: Path) -> None:
    with pytest.raises(SpawnFailed, match="version 2") as failure:
        cgroup_base(root=tmp_path, own=tmp_path / "own")
    assert failure.value.reason == "limit_unenforceable"
    own = group_tree(tmp_path, control="cpu")
    with pytest.raises(SpawnFailed, match="Delegate=memory"):
        cgroup_base(root=tmp_path, own=own)


def test_every_code_in_the_sources_is_known() -> None:
    """The pages translate codes: one that is not listed would show as such."""
    raised = re.compile(
        r'(?:LaunchRefused|SpawnFailed|_unenforceable)\(\s*"([a-z_]+)",'
        r'|ProcessAxis\(\s*Process\.STARTING, [a-z_.]+, "([a-z_]+)"'
        r'|failed\(\s*(?:[a-z_.]+,\s*)+"([a-z_]+)"'
        r'|return "([a-z_]+)" if self\.code < 0 else "([a-z_]+)"'
        r'|reason(?:, text)? = "([a-z_]+)"'
    )
    found: set[str] = set()
    for folder in ("drivers", "engines", "services"):
        for path in (ROOT / "cluster" / folder).glob("*.py"):
            if path.name not in ("http_get.py", "asking.py", "probes.py"):
                for match in raised.finditer(path.read_text(encoding="utf-8")):
                    found |= {code for code in match.groups() if code}
    known = {reason.value for reason in ProcessReason}
    assert found <= known
    assert {"port_taken", "node_error", "verifying", "memory_limit"} <= found


pytestmark = pytest.mark.django_db(transaction=True)


def pid_of(replica: Replica) -> int:
    replica.refresh_from_db()
    assert replica.pid is not None
    return replica.pid


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux binds CPUs")
def test_processes_are_bound_to_cpus_that_others_leave_free(fleet: Fleet) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one CPU")
    version = fleet.version(params={"command": SLEEP, "cpus": 1, "nice": 5})
    one, other = fleet.replica(version), fleet.replica(version)
    node_reconcile(node=fleet.node)
    bound = [os.sched_getaffinity(pid_of(replica)) for replica in (one, other)]
    assert [len(cpus) for cpus in bound] == [1, 1] and bound[0] != bound[1]
    assert psutil.Process(pid_of(one)).nice() == os.nice(0) + 5


def test_a_limit_that_cannot_be_enforced_is_a_stated_reason(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limits, "cgroup_base", lambda: cgroup_base(root=tmp_path))
    replica = fleet.replica(fleet.version(params=CONFINED))
    node_reconcile(node=fleet.node)
    axis = process(replica)
    assert (axis.state, axis.reason) == (Process.FAILED, "limit_unenforceable")
    assert "control groups version 2" in axis.detail


def test_a_process_enters_its_group_and_an_overrun_is_told(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = group_tree(tmp_path)
    monkeypatch.setattr(
        limits, "cgroup_base", lambda: cgroup_base(root=tmp_path, own=own)
    )
    replica = fleet.replica(fleet.version(params=CONFINED))
    node_reconcile(node=fleet.node)
    [group] = (tmp_path / "sluice.slice").glob("sluice-*")
    assert (group / "cgroup.procs").read_text() == str(pid_of(replica))
    (group / "memory.events").write_text("oom_kill 1\n")
    os.kill(pid_of(replica), signal.SIGKILL)
    fleet.until(lambda: process(replica).state is Process.EXITED)
    axis = process(replica)
    assert axis.reason == "memory_limit"
    assert axis.detail.startswith("It used more memory than memory-mb. Ended by signal")


def test_the_end_of_a_process_is_told_at_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    monkeypatch.setattr(tasks, "node_look", lambda name: told.set())
    listener = worker.Deaths("local", fleet.files())
    listener.start()
    try:
        replica = fleet.replica()
        node_reconcile(node=fleet.node)
        assert not told.is_set()
        os.kill(pid_of(replica), signal.SIGKILL)
        assert told.wait(15)
        # What the keeper wrote before it told is there to be read.
        node_reconcile(node=fleet.node)
        assert process(replica).reason == "signal"
    finally:
        listener.end()
    assert not listener.is_alive()


def test_without_a_listener_the_end_is_on_record_all_the_same(fleet: Fleet) -> None:
    os.mkfifo(fleet.files().deaths)
    replica = fleet.replica(command="/bin/sh -c 'exit 3'")
    fleet.until(lambda: process(replica).state is Process.EXITED)
    assert process(replica).detail == "Exited with code 3."
