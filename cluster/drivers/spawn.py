"""Starting a process that outlives us, and learning how it ended."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from cluster.drivers import keeper
from cluster.drivers.identity import (
    MARK_OWNER,
    MARK_REPLICA,
    MARK_START,
    Identity,
    boot_id,
    started_at,
)

# The keeper answers within milliseconds, unless the machine is in trouble.
_ANSWER_S = 10
# Between a death and its record lie two calls of the keeper.
_KEEPER_WRITES_S = 0.5
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


class SpawnFailed(Exception):
    """The process could not be started; ``reason`` is a code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Exit(msgspec.Struct, frozen=True):
    """How a process ended: an exit code, or minus the signal that ended it."""

    pid: int
    code: int
    at: float

    @property
    def reason(self) -> str:
        return "signal" if self.code < 0 else "exit_code"

    @property
    def text(self) -> str:
        if self.code >= 0:
            return f"Exited with code {self.code}."
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            return f"Ended by signal {-self.code}."
        return f"Ended by signal {-self.code} ({name})."


def environment_build(
    *, replica_id: str, owner: str, start: str, extra: str = ""
) -> dict[str, str]:
    """What the process sees: none of our settings, so none of our secrets.

    ``extra`` is text like ``CUDA_VISIBLE_DEVICES=0 A="b c"``. Raises
    ``SpawnFailed`` when it is not.
    """
    environment = _passed_on()
    try:
        words = shlex.split(extra)
    except ValueError as error:
        raise SpawnFailed("bad_param", f"The parameter env: {error}.") from error
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name.isidentifier() or name.startswith("SLUICE_"):
            raise SpawnFailed(
                "bad_param", f"The parameter env takes NAME=value, not {word!r}."
            )
        environment[name] = value
    marks = {MARK_REPLICA: replica_id, MARK_OWNER: owner, MARK_START: start}
    return environment | marks


def _passed_on() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


def spawn(
    *,
    command: list[str],
    environment: Mapping[str, str],
    folder: Path,
    log_file: Path,
    exit_file: Path,
    deaths_file: Path | None = None,
    cpus: Sequence[int] = (),
    cgroup: str = "",
    nice: int = 0,
) -> Identity:
    """Start the command in a session of its own; raises ``SpawnFailed``.

    ``deaths_file`` is the pipe that is told of its end. It runs on these ``cpus``
    (none: all), in this control group, ``nice`` behind everybody else.
    """
    exit_file.unlink(missing_ok=True)
    order = {
        "command": command,
        "environment": dict(environment),
        "folder": str(folder),
        "log_file": str(log_file),
        "exit_file": str(exit_file),
        "deaths_file": str(deaths_file or os.devnull),
        "cpus": list(cpus),
        "cgroup": cgroup,
        "nice": nice,
    }
    reply = _keeper_ask(order)
    pid = reply["pid"]
    # A process that died at once is told by its exit file, not by its start.
    return Identity(pid, started_at(pid) or 0.0, boot_id())


def _keeper_ask(order: Mapping[str, object]) -> dict[str, int]:
    """Have a keeper start the process; its answer, or ``SpawnFailed``."""
    try:
        answer = subprocess.run(
            # Isolated and without site packages: small, and quick to start.
            [sys.executable, "-I", "-S", keeper.__file__],
            input=json.dumps(order),
            env=_passed_on(),
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=True,
        )
        reply: dict[str, int] = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise SpawnFailed("spawn_failed", f"Starting failed: {error}.") from error
    if "error" in reply:
        raise SpawnFailed("spawn_failed", f"Starting failed: {reply['error']}.")
    return reply


def exit_wait(exit_file: Path, pid: int) -> Exit | None:
    """``exit_read`` of a process just found dead: its keeper may be about to write."""
    deadline = time.monotonic() + _KEEPER_WRITES_S
    while (exit_ := exit_read(exit_file, pid)) is None:
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)
    return exit_


def exit_read(exit_file: Path, pid: int) -> Exit | None:
    """How the process of this pid ended; None when that is not on record."""
    with suppress(OSError, msgspec.DecodeError):
        exit_ = msgspec.json.decode(exit_file.read_bytes(), type=Exit)
        return exit_ if exit_.pid == pid else None
    return None
