"""Knowing a process again: its pid alone may by now be somebody else's.

Linux counts a process's start in clock ticks since boot, which no change of the
clock moves; with the boot id it names the process for good. Elsewhere the start is
a time of day.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

# Environment variables by which a replica's processes are found again.
MARK_REPLICA = "SLUICE_REPLICA"
MARK_OWNER = "SLUICE_REPLICA_OWNER"
MARK_START = "SLUICE_REPLICA_START"
_PROC = sys.platform == "linux"


class Identity(msgspec.Struct, frozen=True):
    pid: int
    started: float
    boot_id: str


class Marked(msgspec.Struct, frozen=True):
    """A process that carries our mark.

    ``start`` is the same for every process of one start of a replica; ``session``
    is the leader of its session.
    """

    identity: Identity
    session: int
    start: str
    replica_id: str


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(psutil.boot_time())


def started_at(pid: int) -> float | None:
    """When the process started, None when it is gone or a zombie."""
    return _ticks(pid) if _PROC else _time_of_day(pid)


def _ticks(pid: int) -> float | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold blanks and brackets; the last bracket ends it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else float(fields[19])


def _time_of_day(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time()
    except psutil.NoSuchProcess:
        return None


def is_alive(identity: Identity) -> bool:
    """Whether this very process runs; a zombie does not."""
    if identity.boot_id != boot_id():
        return False
    return started_at(identity.pid) == identity.started


def began_at(identity: Identity) -> float:
    """The time of day at which a living process began, in Unix seconds."""
    try:
        return round(psutil.Process(identity.pid).create_time(), 3)
    except psutil.NoSuchProcess:
        return round(time.time(), 3)


def memory_bytes(identity: Identity) -> int | None:
    """What a living process and its children hold in memory; None if it is gone."""
    try:
        process = psutil.Process(identity.pid)
        family = [process, *process.children(recursive=True)]
        return sum(one.memory_info().rss for one in family)
    except psutil.Error:
        return None


def reap(pid: int) -> None:
    """Take a zombie off the process table, if it is a child of ours."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def group_signal(pid: int, number: signal.Signals) -> None:
    """Signal a process and its process group; one that is gone is no error.

    A replica leads a session of its own. Where a marked process leads none, only
    it is signalled, never the group it happens to be in.
    """
    with suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


def marked_processes(owner: str) -> Iterator[Marked]:
    """Every living process that carries the mark of ``owner``, as far as we may see.

    Programs that rewrite their title overwrite their environment with it and are
    not found.
    """
    boot = boot_id()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            environment = process.environ()
            if environment.get(MARK_OWNER) != owner:
                continue
            if (started := started_at(process.pid)) is not None:
                yield Marked(
                    Identity(process.pid, started, boot),
                    os.getsid(process.pid),
                    environment.get(MARK_START, ""),
                    environment.get(MARK_REPLICA, ""),
                )
