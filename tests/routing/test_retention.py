"""What is too old goes, in constant memory and without keeping writers waiting."""

from __future__ import annotations

import time
import tracemalloc
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from routing.models import (
    OutcomeRecord,
    TelemetrySource,
    TrafficMinute,
    UsageDay,
    UsageHour,
)
from routing.services import outcomes_ingest, retention, telemetry_prune
from routing.services.outcome_rows import COLUMNS, line_read, rows_insert
from routing.services.retention import request_id_floor
from tests.routing.gateway_sender import Sender, request_id

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

NOW = timezone.now()


def prune(
    *, budget_s: float = 60, pause: Callable[[float], None] = lambda _: None
) -> int:
    return telemetry_prune(now=NOW, budget_s=budget_s, pause=pause)


def outcome_aged(**age: float) -> str:
    at = (NOW - timedelta(**age)).timestamp()
    id_ = request_id(at)
    Sender(f"gw-{id_}").send(1, request_id=id_, at=at)
    outcomes_ingest()
    return id_


def kept() -> set[str]:
    return {id_.hex for id_ in OutcomeRecord.objects.values_list("id", flat=True)}


def test_rows_are_kept_for_the_days_that_are_set(settings: Any) -> None:
    settings.OUTCOMES_KEPT_DAYS = 3
    young = outcome_aged(days=3, seconds=-10)
    outcome_aged(days=3, seconds=10)
    outcome_aged(days=300)
    assert prune() == 2
    assert kept() == {young}


def test_minutes_are_kept_for_8_days_and_hours_of_usage_for_400() -> None:
    cell = {"model": "m", "version": "v", "team": "t", "key": "k", "ending": "broken"}
    for days in (7, 9, 399, 401):
        at = NOW - timedelta(days=days)
        UsageHour.objects.create(hour=at, **cell)
        UsageDay.objects.create(day=at.date(), **cell)
        TrafficMinute.objects.create(
            minute=at, generation=1, share_bp=1, chosen=False, **cell
        )
    assert prune() == 5
    assert TrafficMinute.objects.get().minute == NOW - timedelta(days=7)
    assert {row.hour for row in UsageHour.objects.all()} == {
        NOW - timedelta(days=days) for days in (7, 9, 399)
    }
    assert {row.day for row in UsageDay.objects.all()} == {
        (NOW - timedelta(days=days)).date() for days in (7, 9, 399)
    }


def test_closed_books_are_kept_as_long_as_the_rows(settings: Any) -> None:
    settings.OUTCOMES_KEPT_DAYS = 3
    for name, days in (("old", 4), ("young", 2)):
        closed_at = NOW - timedelta(days=days)
        TelemetrySource.objects.create(gateway=name, closed_at=closed_at)
    TelemetrySource.objects.create(gateway="open")
    assert prune() == 1
    assert set(TelemetrySource.objects.values_list("pk", flat=True)) == {
        "young",
        "open",
    }


def test_the_lowest_id_of_a_moment_splits_ids_at_the_moment() -> None:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    before, after = (
        uuid.UUID(hex=request_id(moment.timestamp() + s)) for s in (-0.001, 0)
    )
    assert before < request_id_floor(moment) <= after
    assert request_id_floor(datetime(1969, 1, 1, tzinfo=UTC)).int == 0


def fill(count: int) -> None:
    """Old rows, past the stream."""
    sender = Sender()
    at = (NOW - timedelta(days=40)).timestamp()
    _, (line,) = sender.batch(1, at=at)
    row = list(line_read(1, line, gateway=sender.id).row)
    place = COLUMNS.index("id")
    for second in range(count // 1_000):
        rows = []
        for _ in range(1_000):
            row[place] = uuid.UUID(hex=request_id(at + second))
            rows.append(tuple(row))
        with transaction.atomic():
            rows_insert(rows)


def test_100_000_rows_go_in_constant_memory_and_short_transactions() -> None:
    fill(100_000)
    young = outcome_aged(days=1)
    turns: list[float] = []
    tracemalloc.start()
    try:
        pruned = prune(budget_s=600, pause=turns.append)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert pruned == 100_000
    assert kept() == {young}
    # A chunk of ids and no rows.
    assert peak < 4_000_000
    assert len(turns) == 100_000 // retention._CHUNK
    assert max(turns) < 5


def test_what_the_time_did_not_suffice_for_comes_with_the_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "_CHUNK", 100)
    fill(1_000)
    began = time.monotonic()
    assert prune(budget_s=0) == 100
    assert time.monotonic() - began < 5
    assert prune() == 900
