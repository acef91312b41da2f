"""Failures by the minute, and what a process holds in memory."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from cluster.drivers.identity import Identity, boot_id, memory_bytes, started_at
from cluster.health.failures import failures_of_hour, minute_of


def test_only_the_last_hour_counts() -> None:
    now = 3_600_000.0
    minute = minute_of(now)
    counts = {
        str(minute).encode(): b"2",
        str(minute - 59).encode(): b"3",
        str(minute - 60).encode(): b"100",
        b"junk": b"7",
        str(minute - 1).encode(): b"junk",
    }
    assert failures_of_hour(counts, now) == 5


def test_memory_is_that_of_the_process_and_nobody_elses() -> None:
    code = "x = bytearray(50_000_000); print(len(x), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = started_at(process.pid)
        assert began is not None
        held = memory_bytes(Identity(process.pid, began, boot_id()))
        assert held is not None and held > 50_000_000
        rss = psutil.Process(process.pid).memory_info().rss
        assert held == pytest.approx(rss, rel=0.2)
        process.kill()
    assert memory_bytes(Identity(process.pid, began, boot_id())) is None
