"""Starts one process and stays beside it to learn how it ended.

A program of its own, started by its path with a JSON order on standard input: it
imports nothing of ours. It forks: the parent answers with the pid on standard
output and is gone; the child, in a session of its own, waits for the process and
writes its exit status to a file. Thus the process outlives whoever asked for it,
never stays a zombie, and its end is on record even if nobody watched. A keeper that
is killed takes nothing with it; only the exit status is lost then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any


def main() -> None:
    order = json.load(sys.stdin)
    answers, answer = os.pipe()
    if os.fork():
        os.close(answer)
        with os.fdopen(answers) as file:
            sys.stdout.write(file.read())
        return
    os.close(answers)
    os.setsid()
    _signals_reset()
    process = _start(order, answer)
    if process is not None:
        code = process.wait()
        _record(order["exit_file"], {"pid": process.pid, "code": code})
        _tell(order["deaths_file"])
    os._exit(0)


def _start(order: dict[str, Any], answer: int) -> subprocess.Popen[bytes] | None:
    """Start the process and answer with its pid, or with what went wrong."""
    process = None
    try:
        _confine(order)
        with open(order["log_file"], "ab") as log:  # noqa: PTH123
            process = subprocess.Popen(
                order["command"],
                cwd=order["folder"],
                env=order["environment"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: _enter(order["cgroup"]),
            )
        reply: dict[str, Any] = {"pid": process.pid}
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reply = {"error": str(error)}
    _detach()
    with os.fdopen(answer, "w") as file:
        json.dump(reply, file)
    return process


def _confine(order: dict[str, Any]) -> None:
    """Bind ourselves, which what we start inherits."""
    if order["cpus"]:
        os.sched_setaffinity(0, order["cpus"])
    if order["nice"]:
        os.nice(order["nice"])


def _enter(cgroup: str) -> None:
    """Enter the control group, between fork and exec: the keeper stays outside."""
    if cgroup:
        with open(f"{cgroup}/cgroup.procs", "w") as file:  # noqa: PTH123
            file.write(str(os.getpid()))


def _signals_reset() -> None:
    """What the asker ignored or blocked must not be ignored by the process too."""
    for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "CHLD", "ALRM"):
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _detach() -> None:
    """Let go of the standard streams, which belong to whoever asked."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _record(path: str, entry: dict[str, Any]) -> None:
    """Write the file as a whole: a reader sees all of it or none."""
    with open(f"{path}.new", "w") as file:  # noqa: PTH123
        json.dump(entry | {"at": time.time()}, file)
    os.replace(f"{path}.new", path)  # noqa: PTH105


def _tell(pipe: str) -> None:
    """Wake the worker; if none listens, its schedule finds the record."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        os.write(descriptor, b"+")
    except OSError:
        pass
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
