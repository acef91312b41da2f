"""What ``make run`` starts, watches and stops.

One thread, one loop: it sleeps until a child says something, a child ends, a
signal arrives or a restart is due. Each child is the leader of a session of its
own, so that Ctrl-C reaches only the supervisor, which then stops the children in
order: gateways first (their streams may end), the database of live state last.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from console.child_log import ChildLog
from console.children import ChildSpec

PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
# A child that ran this long has recovered: its next pause is the first again.
STEADY_S = 60.0
LOGS_CHECKED_EVERY_S = 30.0
_PR_SET_PDEATHSIG = 1
# Loaded before any fork: little is safe between fork and exec.
_LIBC = ctypes.CDLL(None)


@dataclass
class Child:
    spec: ChildSpec
    log: ChildLog
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0
    start_due: float | None = 0.0
    stopping: bool = False

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass
class Supervisor:
    """Keeps the children running until it is told to stop.

    ``say`` gets one readable line per event.
    """

    log_dir: Path
    environment: dict[str, str]
    say: Callable[[str], None]
    children: list[Child] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._logs_checked_at = time.monotonic()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Signals wake the loop instead of interrupting whatever runs."""
        caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
        before = {number: signal.getsignal(number) for number in caught}
        wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in caught:
            signal.signal(number, lambda received, _frame: self._caught(received))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)

    def _caught(self, number: int) -> None:
        if number != signal.SIGCHLD:
            self._signals.append(number)

    @property
    def asked_to_stop(self) -> bool:
        return bool(self._signals)

    def add(self, specs: Sequence[ChildSpec]) -> None:
        """Take children on; they start in the next turn of the loop."""
        for spec in specs:
            log = ChildLog(self.log_dir / f"{spec.name}.log", source=spec.name)
            self.children.append(Child(spec, log))

    def run_until(self, done: Callable[[], bool], *, every_s: float = 1.0) -> None:
        """Turn the loop until ``done``, or until a signal asks to stop."""
        while not done() and not self.asked_to_stop:
            self._turn(every_s)

    def stop(self, chosen: Sequence[Child]) -> None:
        """Stop these children together, in the time that each may take; a further
        signal ends them at once."""
        seen = len(self._signals)
        deadlines: dict[int, float] = {}
        for child in chosen:
            child.start_due, child.stopping = None, True
            if child.process is not None:
                deadlines[child.process.pid] = (
                    time.monotonic() + child.spec.stop_within_s
                )
                child.process.terminate()
        while running := [child for child in chosen if child.process is not None]:
            hurry = len(self._signals) > seen
            for child in running:
                assert child.process is not None
                if hurry or time.monotonic() > deadlines[child.process.pid]:
                    self.say(f"{child.name} is ended by force")
                    _kill_session(child.process.pid)
            self._turn(0.2)

    def close(self) -> None:
        for child in self.children:
            child.log.close()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _turn(self, longest_s: float) -> None:
        now = time.monotonic()
        for child in self.children:
            if child.start_due is not None and child.start_due <= now:
                self._start(child)
        due = [child.start_due for child in self.children if child.start_due]
        wait = min([longest_s, *(max(0.0, at - now) for at in due)])
        for key, _events in self._selector.select(wait):
            if key.fd == self._wake_read:
                self._drain_wakeups()
            else:
                self._read(key.data, key.fd)
        self._reap()
        if now - self._logs_checked_at > LOGS_CHECKED_EVERY_S:
            self._logs_checked_at = now
            for child in self.children:
                child.log.rotate()

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 512):
                pass

    def _start(self, child: Child) -> None:
        child.start_due = None
        raw = child.log.open_raw() if child.spec.stdout_raw else None
        try:
            child.process = subprocess.Popen(
                child.spec.command,
                stdin=subprocess.DEVNULL,
                stdout=raw or subprocess.PIPE,
                stderr=subprocess.PIPE if raw else subprocess.STDOUT,
                start_new_session=True,
                env=self.environment,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        except OSError as error:
            self.say(f"{child.name} cannot be started: {error.strerror}")
            self._plan_restart(child)
            return
        finally:
            if raw is not None:
                os.close(raw)
        child.started_at = time.monotonic()
        pipe = child.process.stderr if raw else child.process.stdout
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        self._selector.register(pipe, selectors.EVENT_READ, child)
        self.say(f"{child.name} started (pid {child.process.pid})")

    def _read(self, child: Child, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 65_536)
        except BlockingIOError:
            return
        if data:
            child.log.feed(data)
            return
        self._selector.unregister(descriptor)

    def _reap(self) -> None:
        """Notice every ended child, and every stray that was reparented to us."""
        by_pid = {c.process.pid: c for c in self.children if c.process is not None}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (child := by_pid.get(pid)) is not None:
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: Child, code: int) -> None:
        assert child.process is not None
        # Popen must not wait for a pid that is gone already.
        child.process.returncode = code
        for pipe in (child.process.stdout, child.process.stderr):
            if pipe is None:
                continue
            self._read_rest(child, pipe.fileno())
            pipe.close()
        child.process = None
        child.log.flush()
        if child.stopping:
            self.say(f"{child.name} stopped")
            return
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        last = f": {child.log.last}" if child.log.last else ""
        self._plan_restart(child)
        pause = PAUSES_S[min(child.failures, len(PAUSES_S)) - 1]
        self.say(f"{child.name} ended ({how}){last}; starting again in {pause:g} s")

    def _read_rest(self, child: Child, descriptor: int) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(descriptor, 65_536):
                child.log.feed(data)
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def _plan_restart(self, child: Child) -> None:
        now = time.monotonic()
        if child.started_at and now - child.started_at >= STEADY_S:
            child.failures = 0
        child.start_due = now + PAUSES_S[min(child.failures, len(PAUSES_S) - 1)]
        child.failures += 1


def _kill_session(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _die_with_parent() -> None:
    """Linux tells the child when the supervisor is killed: nothing is orphaned."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
