"""The three measurements of one candidate in one round."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import uvloop

from tests.bench import load, wrk
from tests.bench.candidates import Target
from tests.bench.machine import cpu_seconds
from tests.fakes.engine import MockEngine

STREAMS = 300
STREAM_TOKENS = 64
GAP_MS = 20
# Beyond this rate the client itself, in Python, would be what is measured.
MOST_PACED_PER_S = 5000

_Result = TypeVar("_Result")


class Plan(NamedTuple):
    """Seconds of each measurement, and how often the candidates take turns."""

    rounds: int
    warm_up_s: int
    throughput_s: int
    paced_s: float
    streams_s: float


FULL = Plan(rounds=3, warm_up_s=1, throughput_s=4, paced_s=3, streams_s=5)
QUICK = Plan(rounds=1, warm_up_s=1, throughput_s=2, paced_s=1, streams_s=2)


class Sample(msgspec.Struct, frozen=True):
    """One candidate in one round. ``busy`` is its CPU time by the clock's while it
    answered as fast as it could: well below 1, load and mock were the limit, and
    only requests per CPU second compare.

    ``chunks_per_s`` tells whether the streams kept their pace.
    """

    requests_per_s: float
    requests_per_cpu_s: float
    busy: float
    paced_per_s: float
    p50_ms: float
    p99_ms: float
    added_p50_ms: float
    added_p99_ms: float
    cpu_us_per_chunk: float
    chunks_per_s: float
    failed: int


class Bench:
    """Measures candidates against one mock engine."""

    def __init__(self, engine: MockEngine, plan: Plan, folder: Path) -> None:
        self.engine = engine
        self.plan = plan
        self.folder = folder
        self.with_wrk = wrk.installed()

    def warm_up(self, target: Target) -> None:
        self._throughput(target, self.plan.warm_up_s)

    def sample(self, target: Target, direct: Target) -> Sample:
        cpu, started = cpu_seconds(target.pid), time.perf_counter()
        counted = self._throughput(target, self.plan.throughput_s)
        busy = (cpu_seconds(target.pid) - cpu) / (time.perf_counter() - started)
        per_cpu_s = counted.requests_per_s / max(busy, 0.01)
        # Half of what its core can do, not of what others left of it just now.
        rate = min(per_cpu_s / 2, MOST_PACED_PER_S)
        base = _run(load.paced(direct, rate, self.plan.paced_s))
        through = base
        if target != direct:
            through = _run(load.paced(target, rate, self.plan.paced_s))
        p50, p99 = _quantiles(through.values_ms)
        base_p50, base_p99 = _quantiles(base.values_ms)
        cpu_us, chunks_per_s, broken = self._streams(target)
        return Sample(
            requests_per_s=counted.requests_per_s,
            requests_per_cpu_s=per_cpu_s,
            busy=busy,
            paced_per_s=rate,
            p50_ms=p50,
            p99_ms=p99,
            added_p50_ms=p50 - base_p50,
            added_p99_ms=p99 - base_p99,
            cpu_us_per_chunk=cpu_us,
            chunks_per_s=chunks_per_s,
            failed=counted.failed + through.failed + broken,
        )

    def _throughput(self, target: Target, seconds: int) -> load.Counted:
        if self.with_wrk:
            return wrk.throughput(target, seconds=seconds, folder=self.folder)
        return _run(load.closed_loop(target, seconds))

    def _streams(self, target: Target) -> tuple[float, float, int]:
        """CPU microseconds per chunk, chunks per second, broken streams.

        All a stream costs is counted, its beginning and its end too, and divided
        by the chunks with content.
        """
        self.engine.set(gap_ms=GAP_MS)
        try:
            return _run(self._streams_window(target))
        finally:
            self.engine.set(gap_ms=0)
            self.engine.counters_when(lambda counters: counters.running == 0)

    async def _streams_window(self, target: Target) -> tuple[float, float, int]:
        streams = load.Streams(target, tokens=STREAM_TOKENS)
        try:
            await streams.open(STREAMS, over_s=STREAM_TOKENS * GAP_MS / 1000)
            chunks, cpu = self.engine.counters().tokens_sent, cpu_seconds(target.pid)
            started = time.perf_counter()
            await asyncio.sleep(self.plan.streams_s)
            chunks = self.engine.counters().tokens_sent - chunks
            cpu = cpu_seconds(target.pid) - cpu
            seconds = time.perf_counter() - started
        finally:
            await streams.close()
        if not streams.completed:
            streams.failed += 1
        return cpu / max(1, chunks) * 1e6, chunks / seconds, streams.failed


def _run(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    return uvloop.run(coroutine)


def _quantiles(values: list[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    if len(values) < 2:
        return float("nan"), float("nan")
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]
