"""Cores and CPU time: where processes run, and what they used."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil


class Cores(NamedTuple):
    """One core for the proxy, another for load and mock; empty: not pinned."""

    proxy: frozenset[int]
    load: frozenset[int]


def cores_choose() -> Cores:
    """The last two cores this process may use: interrupts prefer the first ones."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores(frozenset(), frozenset())
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        return Cores(frozenset(), frozenset())
    return Cores(proxy=frozenset(allowed[-1:]), load=frozenset(allowed[-2:-1]))


@contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """This process, and the children it starts meanwhile, on these cores."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and the descendants it has now."""
    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system
    return total


class Machine(NamedTuple):
    """``load_before`` is the load average of the last minute: others at work make
    absolute figures worthless and ratios weak."""

    processor: str
    cores: int
    system: str
    python: str
    load_before: float

    def __str__(self) -> str:
        return (
            f"{self.processor}, {self.cores} cores, {self.system}, "
            f"Python {self.python}, load average {self.load_before:.1f} before the run"
        )


def machine() -> Machine:
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        load_before=os.getloadavg()[0],
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
