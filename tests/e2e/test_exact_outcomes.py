"""Ten thousand requests, a third of which go wrong: every book says the same."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db.models import Sum

from cluster.engines.mock.counters import Counters
from routing.contracts.outcome import Ending, Outcome, outcome_decode
from routing.models import (
    GenerationServed,
    OutcomeRecord,
    TelemetrySource,
    TrafficMinute,
    UsageHour,
)
from routing.services import counts_ingest, outcomes_ingest
from tests import services
from tests.e2e.product import eventually
from tests.fakes.engine import MockEngine
from tests.gateway import world
from tests.gateway.world import CHAT, ControlPlane, GatewayProcess, route

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.django_db(transaction=True),
]

REQUESTS = 10_000
CLIENTS = 24
NOTHING = b"\0"
FIGURES = (
    *("requests", "retries", "prompt_tokens", "completion_tokens"),
    *("estimated", "bytes_in", "bytes_out"),
)


class Plan:
    """What one request asks for; ``leaves`` is the mark after which the client goes."""

    def __init__(self, rng: random.Random, key: str) -> None:
        self.key = key
        self.leaves = b""
        self.body: dict[str, Any] = {
            "model": "m",
            "messages": [{"role": "user", "content": "x" * rng.randrange(1, 80)}],
            "max_tokens": rng.randrange(1, 6),
            "stream": rng.random() < 0.7,
        }
        kind = rng.random()
        if kind < 0.12:
            self.body |= {"stream": True, "x_mock": {"tokens": 400, "gap_ms": 5}}
            self.leaves = b'"content"'
        elif kind < 0.18:
            self.body |= {"x_mock": {"delay_headers_ms": 5000}}
            self.leaves = NOTHING
        elif kind < 0.24:
            self.body |= {"stream": True, "x_mock": {"tokens": 6, "cut_after": 3}}
        elif kind < 0.28:
            self.body |= {"stream": True, "x_mock": {"no_usage": True}}
        elif kind < 0.31:
            self.body |= {"x_mock": {"status": 422}}
        elif kind < 0.33:
            self.body |= {"model": "nobody"}
        elif kind < 0.35:
            self.key = f"sk-{'0' * 48}"

    @property
    def sent(self) -> bytes:
        body = json.dumps(self.body).encode()
        return (
            b"POST %b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%b"
            % (CHAT.encode(), self.key.encode(), len(body), body)
        )


async def _client(port: int, plans: list[Plan]) -> None:
    while plans:
        plan = plans.pop()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(plan.sent)
        if plan.leaves == NOTHING:
            # It must reach the engine, for the engine's book to know of it.
            await asyncio.sleep(0.3)
        else:
            seen = b""
            while not (plan.leaves and plan.leaves in seen):
                data = await reader.read(65536)
                if not data:
                    break
                seen += data
        writer.close()


async def _traffic(gateways: list[GatewayProcess], plans: list[Plan]) -> None:
    ports = [gateways[number % len(gateways)].port for number in range(CLIENTS)]
    await asyncio.gather(*(_client(port, plans) for port in ports))


def _sums(rows: Any) -> dict[str, int]:
    found = rows.aggregate(*map(Sum, FIGURES))
    return {name: found[f"{name}__sum"] or 0 for name in FIGURES}


def _ingested() -> bool:
    outcomes_ingest()
    counts_ingest(now=time.time())
    counted = TrafficMinute.objects.aggregate(n=Sum("requests"))["n"]
    return bool(OutcomeRecord.objects.count() == counted == REQUESTS)


def test_outcomes_minutes_mocks_and_usage_agree_exactly(
    valkey: redis.Redis, valkey_server: services.Valkey, tmp_path: Path
) -> None:
    control = ControlPlane(valkey_server)
    control.mark_complete()
    key = control.key()
    rng = random.Random(4)
    plans = [Plan(rng, key) for _ in range(REQUESTS)]
    with ExitStack() as stack:
        stack.callback(control.client.close)
        engines = [
            stack.enter_context(MockEngine(seed=seed, fail_rate=0.06))
            for seed in (1, 2)
        ]
        for name in ("m-v1-1", "m-v2-1"):
            control.probe(name)
        one, other = (engine.address for engine in engines)
        control.publish(route("m", {"v1": (6000, [one]), "v2": (4000, [other])}))
        gateways = [
            stack.enter_context(world.gateway(tmp_path / name, valkey_server.url))
            for name in ("one", "two")
        ]
        asyncio.run(_traffic(gateways, plans))
        eventually(lambda: len(_logged(gateways)) == REQUESTS, within_s=30)
        eventually(_ingested, within_s=60)
        _books_agree(_logged(gateways), [engine.counters() for engine in engines])


def _logged(gateways: list[GatewayProcess]) -> list[Outcome]:
    return [outcome for gateway in gateways for outcome in gateway.outcomes()]


def _books_agree(outcomes: list[Outcome], engines: list[Counters]) -> None:
    endings = Counter(outcome.ending for outcome in outcomes)
    bad = sum(endings.values()) - endings[Ending.COMPLETED]
    assert bad > 0.3 * REQUESTS and set(endings) >= {
        *(Ending.CLIENT_LEFT, Ending.BROKEN, Ending.REFUSED, Ending.COMPLETED)
    }
    assert len({outcome.request_id for outcome in outcomes}) == REQUESTS

    # The engines saw every attempt, and how it ended.
    errors = Counter(
        attempt.error for outcome in outcomes for attempt in outcome.attempts
    )
    assert sum(engine.requests for engine in engines) == sum(errors.values())
    left = errors["client_disconnected"]
    assert sum(engine.aborted for engine in engines) == left
    assert sum(engine.cut for engine in engines) == endings[Ending.BROKEN]

    # The rows are the outcomes.
    rows = {row.id.hex: row for row in OutcomeRecord.objects.all()}
    for outcome in outcomes:
        assert outcome_decode(bytes(rows[outcome.request_id].body)) == outcome
    assert not TelemetrySource.objects.exclude(lost=0).exists()

    # Minutes and hours sum to the rows, to the last token, by every name.
    wanted = {
        "requests": REQUESTS,
        "retries": sum(max(0, len(o.attempts) - 1) for o in outcomes),
        "prompt_tokens": sum(o.prompt_tokens or 0 for o in outcomes),
        "completion_tokens": sum(o.completion_tokens or 0 for o in outcomes),
        "estimated": sum(o.estimated for o in outcomes),
        "bytes_in": sum(o.bytes_in for o in outcomes),
        "bytes_out": sum(o.bytes_out for o in outcomes),
    }
    assert wanted["retries"] > 100 and wanted["estimated"] > 1000
    assert _sums(TrafficMinute.objects) == _sums(UsageHour.objects) == wanted
    by_row = Counter[tuple[str, ...]]()
    for outcome in outcomes:
        names = (outcome.team, outcome.key, outcome.model, outcome.version)
        by_row[*names, outcome.ending] += outcome.completion_tokens or 0
    by_hour = Counter[tuple[str, ...]]()
    for hour in UsageHour.objects.all():
        names = (hour.team, hour.key, hour.model, hour.version)
        by_hour[*names, hour.ending] += hour.completion_tokens
    assert by_row == by_hour
    drawn = Counter(
        (o.first_version, o.version) for o in outcomes if o.version and not o.chosen
    )
    served = {
        (row["first_version"], row["version"]): row["n"]
        for row in GenerationServed.objects.values("first_version", "version").annotate(
            n=Sum("requests")
        )
    }
    assert served == drawn
