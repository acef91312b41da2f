"""Drivers: what to do about a process, and how processes are started and known."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from cluster.drivers import keeper, replica_log
from cluster.drivers.checksum import ChecksumCache
from cluster.drivers.decision import Act, Seen, Wanted, decide, failed, pause_s
from cluster.drivers.identity import Identity, boot_id, is_alive, started_at
from cluster.drivers.lock import file_lock
from cluster.drivers.notes import Notes, notes_read, notes_write
from cluster.drivers.ports import listen_host, port_choose
from cluster.drivers.replica_log import log_tail, log_trim
from cluster.drivers.spawn import (
    Exit,
    SpawnFailed,
    environment_build,
    exit_wait,
    spawn,
)
from cluster.health import Process, ProcessAxis

FAILED = ProcessAxis(
    Process.FAILED, 90.0, "artifact_missing", "y", next_try=105.0, restarts=3
)
VERIFYING = ProcessAxis(Process.STARTING, 99.0, "verifying", "z", restarts=1)


def up(since: float, restarts: int = 0) -> ProcessAxis:
    return ProcessAxis(Process.RUNNING, since, restarts=restarts)


def ending(since: float) -> ProcessAxis:
    return ProcessAxis(Process.STOPPING, since)


def stopped(since: float) -> ProcessAxis:
    return ProcessAxis(Process.STOPPED, since)


def exited(at: float, next_try: float, restarts: int) -> ProcessAxis:
    return ProcessAxis(Process.EXITED, at, "signal", "x", next_try, restarts)


def living(axis: ProcessAxis) -> Seen:
    return Seen(axis, True, began=100.0, started_for=1, tried_for=1)


def dead(axis: ProcessAxis, at: float = 0.0) -> Seen:
    return Seen(axis, False, tried_for=1, ended_at=at, reason="signal", detail="x")


RUN, REST, AGAIN = Wanted(True, 1), Wanted(False, 1), Wanted(True, 2)


@pytest.mark.parametrize(
    ("wanted", "before", "now", "act", "after"),
    [
        # Nothing to do: the axis stays what it is, since included.
        (RUN, living(up(100.0)), 500.0, Act.NOTHING, up(100.0)),
        (REST, dead(stopped(10.0)), 500.0, Act.NOTHING, stopped(10.0)),
        # First start; a process found without notes is taken over.
        (RUN, dead(stopped(10.0)), 200.0, Act.START, up(200.0)),
        (RUN, living(stopped(10.0)), 200.0, Act.NOTHING, up(100.0)),
        # A restart is asked for: told to end, waited for, killed, started.
        (AGAIN, living(up(100.0)), 200.0, Act.TERMINATE, ending(200.0)),
        (AGAIN, living(ending(100.0)), 109.9, Act.NOTHING, ending(100.0)),
        (AGAIN, living(ending(100.0)), 110.0, Act.KILL, ending(100.0)),
        (AGAIN, dead(ending(100.0)), 110.0, Act.START, up(110.0)),
        # Stopped; wanted again while it is ending.
        (REST, living(up(100.0)), 200.0, Act.TERMINATE, ending(200.0)),
        (REST, dead(ending(100.0)), 200.0, Act.NOTHING, stopped(200.0)),
        (REST, dead(FAILED), 200.0, Act.NOTHING, stopped(200.0)),
        (RUN, living(ending(100.0)), 101.0, Act.NOTHING, ending(100.0)),
        # Died: a pause that grows with each death in a row, and starts over.
        (RUN, dead(up(100.0), 130.0), 131.0, Act.NOTHING, exited(130.0, 131.0, 1)),
        (RUN, dead(up(100.0, 2), 130.0), 131.0, Act.NOTHING, exited(130.0, 135.0, 3)),
        (RUN, dead(up(100.0, 2), 160.0), 161.0, Act.NOTHING, exited(160.0, 161.0, 1)),
        (RUN, living(up(100.0, 2)), 159.0, Act.NOTHING, up(100.0, 2)),
        (RUN, living(up(100.0, 2)), 160.0, Act.NOTHING, up(100.0)),
        # In the pause and after it; whoever restarts by hand does not wait.
        (
            RUN,
            dead(exited(100.0, 105.0, 3)),
            104.9,
            Act.NOTHING,
            exited(100.0, 105.0, 3),
        ),
        (RUN, dead(exited(100.0, 105.0, 3)), 105.0, Act.START, up(105.0, 3)),
        (RUN, dead(FAILED), 104.9, Act.NOTHING, FAILED),
        (RUN, dead(FAILED), 105.0, Act.START, up(105.0, 3)),
        (AGAIN, dead(exited(100.0, 105.0, 3)), 101.0, Act.START, up(101.0)),
        (RUN, dead(VERIFYING), 101.0, Act.START, up(101.0, 1)),
        # The clock was set back: no pause and no grace lasts an hour for it.
        (RUN, dead(exited(4000.0, 4005.0, 3)), 400.0, Act.START, up(400.0, 3)),
        (RUN, dead(FAILED), 50.0, Act.START, up(50.0, 3)),
        (AGAIN, living(ending(4000.0)), 400.0, Act.KILL, ending(4000.0)),
    ],
)
def test_one_step_follows_from_what_is_wanted_and_seen(
    wanted: Wanted, before: Seen, now: float, act: Act, after: ProcessAxis
) -> None:
    step = decide(wanted, before, now)
    assert (step.act, step.axis) == (act, after)


def test_the_pauses_grow_to_half_a_minute() -> None:
    assert [pause_s(n) for n in range(8)] == [1, 1, 2, 5, 10, 30, 30, 30]


def test_failing_again_for_the_same_reason_keeps_since() -> None:
    first = failed(stopped(10.0), 0, "port_taken", "a", 100.0)
    second = failed(first, first.restarts, "port_taken", "b", 101.0)
    other = failed(second, second.restarts, "no_command", "c", 103.0)
    assert [axis.since for axis in (first, second, other)] == [100.0, 100.0, 103.0]
    assert [axis.next_try for axis in (first, second, other)] == [101.0, 103.0, 108.0]


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Identity]:
    """Starts a command as a replica is started, and ends it after the test."""

    def run(*command: str, environment: dict[str, str] | None = None) -> Identity:
        identity = spawn(
            command=list(command),
            environment=environment or {},
            folder=tmp_path,
            log_file=tmp_path / "log",
            exit_file=tmp_path / "exit",
        )

        def end() -> None:
            if is_alive(identity):
                os.killpg(identity.pid, signal.SIGKILL)

        request.addfinalizer(end)
        return identity

    return run


def test_a_process_is_no_child_of_ours_and_leads_its_own_session(
    start: Callable[..., Identity],
) -> None:
    identity = start("/bin/sleep", "60")
    assert is_alive(identity)
    ancestors = {parent.pid for parent in psutil.Process(identity.pid).parents()}
    assert os.getpid() not in ancestors
    assert os.getsid(identity.pid) == os.getpgid(identity.pid) == identity.pid


@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        ("exit 3", 3, "Exited with code 3."),
        ("exit 0", 0, "Exited with code 0."),
        ("kill -9 $$", -9, "Ended by signal 9 (SIGKILL)."),
        ("kill -40 $$", -40, "Ended by signal 40."),
    ],
)
def test_the_end_of_a_process_is_on_record(
    start: Callable[..., Identity], tmp_path: Path, script: str, code: int, text: str
) -> None:
    identity = start("/bin/sh", "-c", script)
    ended = exit_wait(tmp_path / "exit", identity.pid)
    assert isinstance(ended, Exit)
    assert (ended.code, ended.text) == (code, text)
    assert abs(ended.at - time.time()) < 5
    assert not is_alive(identity)
    assert exit_wait(tmp_path / "exit", identity.pid + 1) is None


def test_output_and_only_a_clean_environment_reach_the_process(
    start: Callable[..., Identity], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_SECRET_KEY", "hush")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hush@h/d")
    environment = environment_build(
        replica_id="m-v1-1", owner="/data#local", start="s1", extra="A=1 B='b c'"
    )
    identity = start("/usr/bin/env", environment=environment)
    assert exit_wait(tmp_path / "exit", identity.pid) is not None
    lines = (tmp_path / "log").read_text().splitlines()
    assert {"A=1", "B=b c", "SLUICE_REPLICA=m-v1-1", "SLUICE_REPLICA_START=s1"} <= set(
        lines
    )
    names = {line.split("=")[0] for line in lines}
    assert "PATH" in names and not names & {"SLUICE_SECRET_KEY", "DATABASE_URL"}
    assert "hush" not in "".join(lines)


@pytest.mark.parametrize("extra", ["A", "=1", "a-b=1", "SLUICE_REPLICA_OWNER=x", "A='"])
def test_an_unfit_environment_is_refused(extra: str) -> None:
    with pytest.raises(SpawnFailed) as failure:
        environment_build(replica_id="r", owner="o", start="s", extra=extra)
    assert failure.value.reason == "bad_param"


@pytest.mark.parametrize("command", ["/no/such/program", "/etc/hostname", "a\0b"])
def test_a_program_that_cannot_be_run_says_so(
    start: Callable[..., Identity], command: str
) -> None:
    with pytest.raises(SpawnFailed, match="Starting failed") as failure:
        start(command)
    assert failure.value.reason == "spawn_failed"


def test_signals_that_the_worker_ignores_reach_the_process(
    start: Callable[..., Identity], tmp_path: Path
) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        identity = start("/bin/sleep", "60")
    finally:
        signal.signal(signal.SIGTERM, before)
    os.kill(identity.pid, signal.SIGTERM)
    ended = exit_wait(tmp_path / "exit", identity.pid)
    assert ended is not None and ended.code == -signal.SIGTERM


def test_a_killed_keeper_takes_nothing_with_it(
    start: Callable[..., Identity], tmp_path: Path
) -> None:
    identity = start("/bin/sleep", "60")
    parent = psutil.Process(identity.pid).parent()
    assert parent is not None and keeper.__file__ in parent.cmdline()
    parent.kill()
    psutil.wait_procs([parent], timeout=5)
    assert is_alive(identity)
    os.kill(identity.pid, signal.SIGKILL)
    assert exit_wait(tmp_path / "exit", identity.pid) is None


def test_a_zombie_is_dead_and_so_is_another_process_of_the_same_pid() -> None:
    process = subprocess.Popen(["/bin/sleep", "60"])
    started = started_at(process.pid)
    assert started is not None
    identity = Identity(process.pid, started, boot_id())
    assert is_alive(identity)
    assert not is_alive(Identity(process.pid, started + 1, boot_id()))
    assert not is_alive(Identity(process.pid, started, "an earlier boot"))
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    assert not is_alive(identity)
    process.wait()
    assert not is_alive(identity)


def test_a_process_whose_name_imitates_the_kernels_listing_is_known(
    tmp_path: Path,
) -> None:
    program = tmp_path / "a) Z 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "60"])
    try:
        assert started_at(process.pid) is not None
    finally:
        process.kill()
        process.wait()


def test_a_kept_port_is_used_again_while_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        fresh = port_choose("127.0.0.1", kept=taken, avoid=())
        assert fresh != taken
    assert port_choose("127.0.0.1", kept=fresh, avoid=()) == fresh
    assert port_choose("127.0.0.1", kept=fresh, avoid={fresh}) != fresh


def test_a_node_listens_on_its_own_address_only_if_it_has_it() -> None:
    assert listen_host("127.0.0.1") == "127.0.0.1"
    assert listen_host("192.0.2.7") == "0.0.0.0"
    assert listen_host("2001:db8::7") == "::"


def test_a_long_log_is_moved_aside_without_losing_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_log, "LIMIT_BYTES", 100)
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"x" * 100)
        log_trim(path)
        assert path.stat().st_size == 100
        writer.write(b"y\n")
        log_trim(path)
        writer.write(b"\x1b[31mred\x07\n\n last \n")
    assert path.read_bytes() == b"\x1b[31mred\x07\n\n last \n"
    assert (tmp_path / "log.1").stat().st_size == 102
    assert log_tail(path) == "[31mred / last"
    assert log_tail(path, start=path.stat().st_size) == ""
    assert log_tail(tmp_path / "none") == ""


def test_the_tail_of_a_log_is_made_of_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(f"{n} {'x' * 150}" for n in range(9)))
    assert log_tail(path) == f"7 {'x' * 150} / 8 {'x' * 150}"
    path.write_text("y" * 10_000)
    assert log_tail(path) == "y" * 400


def test_notes_that_cannot_be_read_count_as_none(tmp_path: Path) -> None:
    path = tmp_path / "n.notes"
    notes = Notes(exited(1.0, 2.0, 3), pid=4, start="s", tried_for=2, log_start=7)
    notes_write(path, notes)
    assert notes_read(path) == notes
    path.write_bytes(b'{"axis": {"state": "flying"')
    assert notes_read(path) == Notes()
    assert notes_read(tmp_path / "none") == Notes()


def test_a_checksum_is_computed_once_until_the_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "w"
    file.write_bytes(b"weights")
    cache = ChecksumCache(tmp_path / "cache")
    assert cache.known(file) is None
    sha256 = cache.compute(file)
    assert sha256.startswith("9a129038") and cache.known(file) == sha256
    assert ChecksumCache(tmp_path / "cache").known(file) == sha256
    file.write_bytes(b"Weights")
    os.utime(file, ns=(1, 1))
    assert cache.known(file) is None
    (tmp_path / "cache").write_bytes(b"{broken")
    assert ChecksumCache(tmp_path / "cache").known(file) is None


def test_a_lock_keeps_others_out_and_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import fcntl, sys, json\n"
        "f = open(sys.argv[1], 'ab'); fcntl.flock(f, fcntl.LOCK_EX)\n"
        "print(json.dumps('held'), flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert json.loads(holder.stdout.readline()) == "held"
        with file_lock(path) as alone:
            assert not alone
        holder.kill()
        holder.wait()
    with file_lock(path) as alone, file_lock(path) as again:
        assert alone and not again
