"""The history of loads: one row per replica and minute, kept for a week."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.db import transaction

from cluster import live
from cluster.health.load import MINUTE_KEPT_S, LoadPoint
from cluster.models import Replica, Sample

KEPT = timedelta(days=7)
# A scrape that began in a minute may be pushed this long after its end.
_LATE_S = 10
_CHUNK = 5_000
# From the field of a point to the stem of the columns.
_COLUMNS = {
    "running": "running",
    "waiting": "waiting",
    "kv_cache": "kv",
    "tokens_per_s": "tokens_per_s",
    "ttft_ms": "ttft_ms",
}


def samples_write(*, now: float) -> int:
    """Write the minutes that are over and not written yet; how many rows.

    ``now`` is in Unix seconds. A minute that is written twice, because the first
    time was cut off, stays as it is. Raises ``redis.RedisError``.
    """
    newest = int((now - _LATE_S) // 60) - 1
    written = 0
    for minute in range(newest - MINUTE_KEPT_S // 60, newest + 1):
        if points := live.minute_points(minute):
            written += _minute_write(minute, points)
            live.minute_drop(minute)
    return written


@transaction.atomic
def _minute_write(minute: int, points: Iterable[LoadPoint]) -> int:
    by_replica: dict[str, list[LoadPoint]] = defaultdict(list)
    for point in points:
        by_replica[point.replica_id].append(point)
    known = set(Replica.objects.values_list("pk", flat=True))
    start = datetime.fromtimestamp(60 * minute, UTC)
    rows = [
        _sample(replica_id, start, points)
        for replica_id, points in by_replica.items()
        if replica_id in known
    ]
    Sample.objects.bulk_create(rows, ignore_conflicts=True, batch_size=500)
    return len(rows)


def _sample(replica_id: str, minute: datetime, points: list[LoadPoint]) -> Sample:
    figures: dict[str, float] = {}
    for field, stem in _COLUMNS.items():
        values = [v for p in points if (v := getattr(p, field)) is not None]
        if values:
            figures[f"{stem}_mean"] = sum(values) / len(values)
            figures[f"{stem}_max"] = max(values)
    return Sample(replica_id=replica_id, minute=minute, scrapes=len(points), **figures)


def samples_prune(*, now: datetime) -> int:
    """Delete what is older than a week, in chunks that keep no writer waiting."""
    old = Sample.objects.filter(minute__lt=now - KEPT).order_by("pk")
    pruned = 0
    while chunk := list(old.values_list("pk", flat=True)[:_CHUNK]):
        pruned += Sample.objects.filter(pk__in=chunk).delete()[0]
    return pruned
