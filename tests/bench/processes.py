"""Servers under test: started on their core, waited for, always stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.bench.machine import pinned
from tests.fakes.engine import ROOT

_START_S = 15
_STOP_S = 10


class StartFailed(Exception):
    """A server did not come up; the text holds the end of its log."""


def free_port() -> int:
    """A port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end of the block.

    A process that is just being started would otherwise belong to nobody.
    """
    caught: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    before = {
        number: signal.signal(number, hold)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first in caught[:1]:
            signal.raise_signal(first)


@contextmanager
def served(
    command: Sequence[str],
    *,
    port: int,
    log: Path,
    cores: frozenset[int],
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """A server that accepts on ``port``; the value is its pid.

    It runs in a session of its own, so that Ctrl-C reaches it through us only.
    """
    process = None
    try:
        with log.open("wb") as output, pinned(cores), interrupts_held():
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _await_accept(process, port, log)
        yield process.pid
    finally:
        if process is not None:
            _end(process)


def _await_accept(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace")[-1000:]
                raise StartFailed(f"{process.args!r} did not start:\n{tail}") from None
        time.sleep(0.02)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        # Its own session, hence its own group: nobody else is hit.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
