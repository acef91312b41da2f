"""What a request costs the gateway beyond serving it: outcome, counts, log, metrics.

All of it runs as in the product, to a real Valkey and a real file: from the end of a
request to the socket, the senders and the thread that writes included. What the same
loop costs without an end is taken off.

On a shared machine the same work costs more CPU time than on a quiet one, because
others use its caches. So a fixed piece of work is timed twice: in a tight loop, and
in the place of what is measured. The ratio of the two says by how much.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from routing.contracts.outcome import Attempt, Choice, Ending, Tier, Why
from routing.gateway.access_log import AccessLog
from routing.gateway.config import GatewayConfig
from routing.gateway.exchange import Exchange
from routing.gateway.gateway import Gateway
from routing.gateway.http_server import HttpServer
from routing.gateway.request import Request
from routing.gateway.usage import Tokens
from tests import services

NAME = "telemetry"
TARGET_US = 12.0
RATE_PER_S = 5000
_BURST = 50
_ALONE_TURNS = 4000


class Round(NamedTuple):
    """CPU microseconds: of a request, and of the fixed work in its place and alone."""

    request_us: float
    work_us: float
    work_alone_us: float

    @property
    def quiet_us(self) -> float:
        """As it would be on a quiet core."""
        return self.request_us * min(1.0, self.work_alone_us / self.work_us)


def rounds(folder: Path, *, count: int, requests: int) -> list[Round]:
    with ExitStack() as stack:
        server = stack.enter_context(services.valkey())
        log = os.open(folder / "access.jsonl", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        stack.callback(os.close, log)
        config = GatewayConfig(data_dir=folder, redis_url=server.url)
        return uvloop.run(_rounds(config, log, count, requests))


def table(found: list[Round]) -> str:
    """The result as a Markdown table of one row."""

    def cell(values: list[float]) -> str:
        median, low, high = statistics.median(values), min(values), max(values)
        return f"{median:.1f} ({low:.1f} to {high:.1f})"

    shown = [
        cell([one.request_us for one in found]),
        cell([one.work_us for one in found]),
        cell([one.work_alone_us for one in found]),
        cell([one.quiet_us for one in found]),
    ]
    return (
        "| CPU per request (µs) | measured | fixed work beside it | fixed work alone "
        "| on a quiet core | target |\n|---|---|---|---|---|---|\n"
        f"| {NAME} | {' | '.join(shown)} | ≤ {TARGET_US:.0f} |\n"
    )


async def _rounds(
    config: GatewayConfig, log: int, count: int, requests: int
) -> list[Round]:
    gateway = Gateway(config)
    gateway.access_log = AccessLog(log)
    await gateway.start()
    gc.collect()
    gc.freeze()
    found = []
    try:
        await _load(gateway, requests // 4, _end)
        for _ in range(count):
            idle_us = await _load(gateway, requests, _leave)
            busy_us = await _load(gateway, requests, _end)
            work_us = await _load(gateway, requests, _work)
            found.append(Round(busy_us - idle_us, work_us - idle_us, _work_alone_us()))
    finally:
        await gateway.stop()
    return found


async def _load(
    gateway: Gateway, requests: int, each: Callable[[Exchange], None]
) -> float:
    """CPU microseconds per request at a steady rate."""
    connection = cast(HttpServer, _Connection())
    started, cpu = time.perf_counter(), time.process_time()
    for number in range(requests):
        each(_served(gateway, connection, number))
        if number % _BURST == _BURST - 1:
            due = started + number / RATE_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
    return (time.process_time() - cpu) / requests * 1e6


def _end(exchange: Exchange) -> None:
    exchange.close(200, Ending.COMPLETED, "", 600)


def _leave(exchange: Exchange) -> None:
    """What the loop costs by itself."""


def _work(exchange: Exchange) -> None:
    """A fixed piece of work of the same kind and size: objects, look-ups, text."""
    for part in _PARTS:
        text = json.dumps(part)
        key = (text[:20], len(text))
        _SEEN[key] = _SEEN.get(key, 0) + 1


def _work_alone_us() -> float:
    exchange = cast(Exchange, None)
    began = time.process_time()
    for _ in range(_ALONE_TURNS):
        _work(exchange)
    return (time.process_time() - began) / _ALONE_TURNS * 1e6


class _Connection:
    """As much of a connection as an exchange touches at its end."""

    exchange: Exchange | None = None


def _served(gateway: Gateway, connection: HttpServer, number: int) -> Exchange:
    """A request that one of four keys sent and one of two versions answered."""
    request = Request()
    request.method, request.path = "POST", "/v1/chat/completions"
    now = request.complete_at = request.arrived
    request.size = 180
    exchange = Exchange(gateway, request, connection, "10.0.0.1")
    version = f"v{number % 2 + 1}"
    exchange.team, exchange.key, exchange.model = "team", _KEYS[number % 4], "model"
    exchange.revision, exchange.generation = 7, 3
    exchange.first_version, exchange.first_probability = version, 0.5
    exchange.authorized_at = now + 1e-5
    exchange.tries(version, "model-replica-1", now + 2e-5)
    exchange.first_byte_at = exchange.first_content_at = now + 1.23e-3
    exchange.last_byte_at = now + 1.5e-3
    exchange.tokens = Tokens(12, 90, 4)
    exchange.finish_reason = "stop"
    exchange.attempts.append(_ATTEMPT)
    return exchange


_PARTS = [{"part": n, "numbers": list(range(9)), "text": "w" * 60} for n in range(3)]
_SEEN: dict[tuple[str, int], int] = {}
_KEYS = [letter * 12 for letter in "abcd"]
_ATTEMPT = Attempt(
    "model-replica-1",
    "v1",
    duration_ms=1.512,
    at_ms=0.02,
    choice=Choice(Tier.READY, Why.LOWER_COST, 2, 3, 1.0, "model-replica-2", 2.0),
)
