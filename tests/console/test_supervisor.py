"""The supervisor, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from console.child_log import ChildLog
from console.children import ChildSpec
from console.supervisor import Supervisor

pytestmark = pytest.mark.processes

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"


def python(name: str, code: str, *, stop_within_s: float = 5.0) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-c", code), stop_within_s=stop_within_s)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, said: list[str]) -> Iterator[Supervisor]:
    made = Supervisor(
        log_dir=tmp_path / "log", environment=dict(os.environ), say=said.append
    )
    with made.signals():
        yield made
        made.stop(made.children)
    made.close()


def within(seconds: float, condition: Callable[[], bool]) -> Callable[[], bool]:
    """The condition, which fails the test when it does not come true in time."""
    deadline = time.monotonic() + seconds

    def check() -> bool:
        assert time.monotonic() < deadline, "it did not happen in time"
        return condition()

    return check


def test_a_killed_child_is_named_and_started_again(
    supervisor: Supervisor, said: list[str]
) -> None:
    supervisor.add([python("sleeper", SLEEPER)])
    child = supervisor.children[0]
    supervisor.run_until(within(20, lambda: child.log.last == "up"), every_s=0.02)
    assert child.process is not None
    first = child.process.pid
    os.kill(first, signal.SIGKILL)
    supervisor.run_until(
        within(20, lambda: child.process is not None and child.process.pid != first),
        every_s=0.02,
    )
    assert any("sleeper ended (signal 9)" in line for line in said)


def test_pauses_grow_while_a_child_fails_again_and_again(
    supervisor: Supervisor, said: list[str]
) -> None:
    supervisor.add([python("broken", "raise SystemExit('no licence to run')")])
    supervisor.run_until(
        within(40, lambda: sum("starting again" in line for line in said) == 3),
        every_s=0.05,
    )
    ends = [line for line in said if "starting again" in line]
    assert [line.split()[-2] for line in ends] == ["0.5", "1", "2"]
    assert "no licence to run" in ends[0]


def test_a_child_that_ignores_sigterm_is_ended_by_force(
    supervisor: Supervisor, said: list[str]
) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('up', flush=True); time.sleep(60)"
    )
    supervisor.add([python("stubborn", stubborn, stop_within_s=0.3)])
    child = supervisor.children[0]
    supervisor.run_until(within(20, lambda: child.log.last == "up"), every_s=0.02)
    supervisor.stop([child])
    assert child.process is None
    assert "stubborn is ended by force" in said


def test_a_signal_ends_the_loop_and_leaves_the_order_to_the_caller(
    supervisor: Supervisor,
) -> None:
    supervisor.add([python("sleeper", SLEEPER)])
    child = supervisor.children[0]
    supervisor.run_until(within(20, lambda: child.log.last == "up"), every_s=0.02)
    os.kill(os.getpid(), signal.SIGTERM)
    supervisor.run_until(within(20, lambda: False))
    assert supervisor.asked_to_stop
    assert child.process is not None


@pytest.mark.skipif(sys.platform != "linux", reason="a facility of Linux")
def test_children_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from console.children import ChildSpec
from console.supervisor import Supervisor
s = Supervisor(Path({str(tmp_path)!r}), dict(os.environ), lambda line: None)
s.add([ChildSpec("sleeper", ({sys.executable!r}, "-c", {SLEEPER!r}))])
s.run_until(lambda: s.children[0].log.last == "up", every_s=0.02)
print(s.children[0].process.pid, flush=True)
s.run_until(lambda: False)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        child = psutil.Process(int(run.stdout.readline()))
        run.kill()
        child.wait(timeout=15)
    assert not child.is_running()


def test_plain_text_is_wrapped_and_json_kept(tmp_path: Path) -> None:
    log = ChildLog(tmp_path / "x.log", source="x")
    log.feed(b'{"message": "whole"}\nplain ')
    log.feed(b"text\nunfinished")
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "x.log").read_text().splitlines()]
    assert [line["message"] for line in lines] == ["whole", "plain text", "unfinished"]
    assert lines[1]["logger"] == "x"


def test_a_large_log_keeps_one_older_file_while_the_child_writes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.child_log.ROTATE_BYTES", 10)
    log = ChildLog(tmp_path / "x.log", source="x")
    raw = log.open_raw()
    os.write(raw, b'{"n": 1}\n{"n": 2}\n')
    log.rotate()
    os.write(raw, b'{"n": 3}\n')
    os.close(raw)
    log.close()
    assert (tmp_path / "x.log.1").read_text() == '{"n": 1}\n{"n": 2}\n'
    assert (tmp_path / "x.log").read_text() == '{"n": 3}\n'
