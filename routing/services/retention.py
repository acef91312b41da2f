"""Forgetting: rows, minutes and hours that are older than they are kept.

In chunks, so that memory is constant and no other writer waits for long, and for a
bounded time: what is left comes with the next turn.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from datetime import time as dt_time
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from routing.models import (
    OutcomeRecord,
    TelemetrySource,
    TrafficMinute,
    UsageDay,
    UsageHour,
)

MINUTES_KEPT = timedelta(days=8)
USAGE_KEPT = timedelta(days=400)
_CHUNK = 1_000


def telemetry_prune(
    *, now: datetime, budget_s: float = 120.0, pause: Callable[[float], None]
) -> int:
    """Delete what is too old; how many rows. ``pause`` sleeps for so many seconds.

    The time is shared, so that much of one kind does not save another; what one does
    not need is for the next, the rows of requests last.
    """
    kept = timedelta(days=settings.OUTCOMES_KEPT_DAYS)
    first_kept = request_id_floor(now - kept)
    # Hours go with their day, which is one of UTC.
    first_day = (now - USAGE_KEPT).astimezone(UTC).date()
    midnight = datetime.combine(first_day, dt_time(), UTC)
    sources = TelemetrySource.objects.filter(closed_at__lt=now - kept)
    olds: list[QuerySet[Any]] = [
        TrafficMinute.objects.filter(minute__lt=now - MINUTES_KEPT).order_by("minute"),
        UsageHour.objects.filter(hour__lt=midnight).order_by("hour"),
        UsageDay.objects.filter(day__lt=first_day).order_by("day"),
        sources.order_by("closed_at"),
        OutcomeRecord.objects.filter(id__lt=first_kept).order_by("id"),
    ]
    until = time.monotonic() + budget_s
    pruned = 0
    for kinds_left, old in zip(range(len(olds), 0, -1), olds, strict=True):
        share_s = (until - time.monotonic()) / kinds_left
        pruned += _prune(old, share_s, pause)
    return pruned


def request_id_floor(moment: datetime) -> uuid.UUID:
    """The lowest id that a request of this moment or later may have."""
    return uuid.UUID(int=max(int(moment.timestamp() * 1000), 0) << 80)


def _prune(old: QuerySet[Any], budget_s: float, pause: Callable[[float], None]) -> int:
    until = time.monotonic() + budget_s
    pruned = 0
    while True:
        began = time.monotonic()
        chunk = list(old.values_list("pk", flat=True)[:_CHUNK])
        if chunk:
            pruned += old.model.objects.filter(pk__in=chunk).delete()[0]
        if len(chunk) < _CHUNK or time.monotonic() > until:
            return pruned
        # SQLite has one writer and no queue of them: who waits polls. Half of the
        # time is theirs.
        pause(time.monotonic() - began)
