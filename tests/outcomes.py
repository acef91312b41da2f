"""Outcomes for tests, and their rows and counts as they lie in the database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from routing.contracts.counts import Cell, Figures
from routing.contracts.outcome import (
    Attempt,
    Choice,
    Ending,
    Outcome,
    Tier,
    Why,
    outcome_encode,
)
from routing.models import OutcomeRecord, UsageDay, UsageHour

_made = iter(range(1, 10**9))


def request_id(at: float) -> str:
    """An id of a request that arrived then; a later call sorts later."""
    return f"{int(at * 1000):012x}{next(_made):020x}"


def outcome(at: float | None = None, **changes: Any) -> Outcome:
    """A streamed request that v1 completed at the second attempt, in 1.25 s."""
    at = time.time() if at is None else at
    plain = Outcome(
        request_id=request_id(at),
        at=at,
        gateway="gw-1",
        method="POST",
        path="/v1/chat/completions",
        status=200,
        ending=Ending.COMPLETED,
        client="10.0.0.7",
        team="search",
        key="k1",
        model="qwen",
        revision=9,
        generation=3,
        first_version="v1",
        first_probability=0.95,
        version="v1",
        replica="qwen-v1-1",
        attempts=(
            Attempt(
                "qwen-v1-2",
                "v1",
                error="connect",
                duration_ms=2.0,
                at_ms=21.0,
                connect_ms=2.0,
                choice=Choice(Tier.READY, Why.LOWER_COST, 2, 3, 1.0, "qwen-v1-1", 2.0),
            ),
            Attempt(
                "qwen-v1-1",
                "v1",
                duration_ms=1220.0,
                at_ms=30.0,
                connect_ms=1.0,
                choice=Choice(Tier.READY, Why.ONLY, 1, 3, 2.0),
            ),
        ),
        streamed=True,
        received_ms=0.5,
        authorized_ms=0.75,
        queue_ms=20.0,
        admitted_ms=21.0,
        first_byte_ms=100.0,
        first_content_ms=210.0,
        last_byte_ms=1249.0,
        duration_ms=1250.0,
        prompt_tokens=100,
        completion_tokens=40,
        cached_tokens=64,
        finish_reason="stop",
        bytes_in=600,
        bytes_out=9000,
    )
    return msgspec.structs.replace(plain, **changes)


def refused(at: float | None = None, **changes: Any) -> Outcome:
    """A request with a key that nobody knows: it reached no model and no replica."""
    empty: dict[str, Any] = dict.fromkeys(
        ("team", "key", "model", "version", "replica", "first_version"), ""
    )
    empty |= dict.fromkeys(
        ("admitted_ms", "first_byte_ms", "first_content_ms", "last_byte_ms"), None
    )
    empty |= dict.fromkeys(
        ("prompt_tokens", "completion_tokens", "cached_tokens"), None
    )
    facts = {
        "status": 401,
        "ending": Ending.REFUSED,
        "code": "invalid_api_key",
        "attempts": (),
        "generation": 0,
        "first_probability": 0.0,
        "queue_ms": 0.0,
        "duration_ms": 1.0,
        "finish_reason": "",
    }
    return outcome(at, **(empty | facts | changes))


def row(one: Outcome, *, slow: bool = False) -> OutcomeRecord:
    """The row of an outcome, not saved."""
    return OutcomeRecord(
        id=UUID(one.request_id),
        at=datetime.fromtimestamp(one.at, UTC),
        gateway=one.gateway,
        team=one.team,
        key=one.key,
        model=one.model,
        generation=one.generation,
        first_version=one.first_version,
        version=one.version,
        replica=one.replica,
        status=one.status,
        ending=one.ending,
        code=one.code,
        slow=slow,
        attempts=len(one.attempts),
        duration_ms=one.duration_ms,
        first_content_ms=one.first_content_ms,
        prompt_tokens=one.prompt_tokens,
        completion_tokens=one.completion_tokens,
        body=outcome_encode(one),
    )


def keep(*outcomes: Outcome, slow: bool = False) -> list[str]:
    """Write the rows; the ids in the same order."""
    OutcomeRecord.objects.bulk_create([row(one, slow=slow) for one in outcomes])
    return [one.request_id for one in outcomes]


def cell(one: Outcome) -> Cell:
    """Where a gateway counts this outcome: in the minute of its end."""
    return Cell(
        minute=int(one.at + one.duration_ms / 1000) // 60,
        model=one.model,
        generation=one.generation,
        first_version=one.first_version,
        share_bp=round(one.first_probability * 10_000),
        chosen=one.chosen,
        version=one.version,
        team=one.team,
        key=one.key,
        ending=one.ending,
    )


def figures(one: Outcome) -> Figures:
    return Figures(
        requests=1,
        retries=max(0, len(one.attempts) - 1),
        prompt_tokens=one.prompt_tokens or 0,
        completion_tokens=one.completion_tokens or 0,
        cached_tokens=one.cached_tokens or 0,
        estimated=int(one.estimated),
        duration_ms=round(one.duration_ms),
        ttft_ms=round(one.first_content_ms or 0),
        ttft_count=int(one.first_content_ms is not None),
        bytes_in=one.bytes_in,
        bytes_out=one.bytes_out,
    )


def count(outcomes: Iterable[Outcome]) -> None:
    """Write the hours of usage that come of these outcomes."""
    cells: dict[Cell, list[int]] = {}
    for one in outcomes:
        sums = cells.setdefault(cell(one), [0] * len(Figures._fields))
        for place, value in enumerate(figures(one)):
            sums[place] += value
    hours: dict[tuple[Any, ...], list[int]] = {}
    for where, sums in cells.items():
        hour = datetime.fromtimestamp(where.minute // 60 * 3600, UTC)
        name = (hour, where.team, where.key, where.model, where.version, where.ending)
        total = hours.setdefault(name, [0] * len(Figures._fields))
        for place, value in enumerate(sums):
            total[place] += value
    names = ("hour", "team", "key", "model", "version", "ending")
    UsageHour.objects.bulk_create(
        UsageHour(
            **dict(zip(names, name, strict=True)),
            **dict(zip(Figures._fields, total, strict=True)),
        )
        for name, total in hours.items()
    )
    _days_count(hours)


def _days_count(hours: Mapping[tuple[Any, ...], list[int]]) -> None:
    """The same by days of UTC, on top of what is there."""
    for (hour, *names), total in hours.items():
        where = dict(
            zip(("team", "key", "model", "version", "ending"), names, strict=True)
        )
        row, _new = UsageDay.objects.get_or_create(day=hour.date(), **where)
        for name, value in zip(Figures._fields, total, strict=True):
            setattr(row, name, getattr(row, name) + value)
        row.save()
