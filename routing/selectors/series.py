"""What a model served over time: exact counts, and a bounded sample of latencies.

Requests, errors and tokens come from the counts and are exact. A quantile needs single
requests, of which there may be millions: of each part of the span so many are read
that the whole never exceeds ``SAMPLE_ROWS``, and whoever shows them says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from django.db import connection
from django.db.models import Sum

from routing.models import OutcomeRecord, TrafficMinute, UsageHour
from routing.selectors.buckets import HOUR, Buckets
from routing.selectors.outcomes import id_at
from routing.selectors.usage import ERRORS

SAMPLE_ROWS = 10_000
# SQLite joins at most 500 queries, and there are up to 401 parts.
_QUERIES = 240
# A 95th percentile of fewer values is but their largest.
TAIL_LEAST = 20


@dataclass
class ModelCounts:
    """Per part of the span, by version or by ending. The version is empty where a
    request reached none."""

    requests: dict[str, list[int]] = field(default_factory=dict)
    tokens_out: dict[str, list[int]] = field(default_factory=dict)
    errors: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Quantiles:
    """Of ``n`` values; the tail is None where there are too few for it."""

    n: int
    p50: float
    p95: float | None
    p99: float | None


@dataclass(frozen=True)
class Latencies:
    """Time to first token in milliseconds by version, a value per part of the span;
    None where no request had content. ``read`` requests were looked at, ``whole`` if
    these were all."""

    ttft: dict[str, list[Quantiles | None]]
    read: int
    whole: bool


def counted_since() -> datetime | None:
    """The hour from which on there are counts."""
    return UsageHour.objects.order_by("hour").values_list("hour", flat=True).first()


def model_counts(*, model: str, buckets: Buckets) -> ModelCounts:
    found = ModelCounts()
    for row in _count_rows(model, buckets):
        at, version, ending, requests, tokens = row
        place = buckets.place(at)
        if place is None:
            continue
        _add(found.requests, version, place, requests, len(buckets))
        _add(found.tokens_out, version, place, tokens, len(buckets))
        if ending in ERRORS:
            _add(found.errors, ending, place, requests, len(buckets))
    return found


def _add(
    sums: dict[str, list[int]], name: str, place: int, more: int, size: int
) -> None:
    sums.setdefault(name, [0] * size)[place] += more


def _count_rows(model: str, buckets: Buckets) -> Any:
    table: Any = UsageHour if buckets.step >= HOUR else TrafficMinute
    at = "hour" if table is UsageHour else "minute"
    span = {f"{at}__gte": buckets.edges[0], f"{at}__lt": buckets.edges[-1]}
    rows = table.objects.filter(model=model, **span).values(at, "version", "ending")
    sums = rows.annotate(n=Sum("requests"), tokens=Sum("completion_tokens"))
    return sums.order_by().values_list(at, "version", "ending", "n", "tokens")


def model_latencies(*, model: str, buckets: Buckets) -> Latencies:
    """By the arrival of requests, from at most ``SAMPLE_ROWS`` of them."""
    each = max(1, _QUERIES // len(buckets))
    most = max(1, SAMPLE_ROWS // (each * len(buckets)))
    values: dict[tuple[str, int], list[float]] = defaultdict(list)
    taken: dict[int, int] = defaultdict(int)
    read = 0
    for part, version, ttft_ms in _sample(model, _parts(buckets, each), most):
        read += 1
        taken[part] += 1
        if ttft_ms is not None:
            values[version, part // each].append(ttft_ms)
    ttft: dict[str, list[Quantiles | None]] = {}
    for (version, place), ms in values.items():
        ttft.setdefault(version, [None] * len(buckets))[place] = quantiles(ms)
    return Latencies(ttft, read, all(n < most for n in taken.values()))


def _parts(buckets: Buckets, each: int) -> list[tuple[datetime, datetime]]:
    """Every bucket cut into so many: a sample of each is spread over the bucket."""
    edges = [
        start + (end - start) * n / each
        for start, end in zip(buckets.edges, buckets.edges[1:], strict=False)
        for n in range(each)
    ]
    edges.append(buckets.edges[-1])
    return list(zip(edges, edges[1:], strict=False))


def _sample(
    model: str, parts: Sequence[tuple[datetime, datetime]], most: int
) -> list[tuple[int, str, float | None]]:
    """The first rows of each part: its number, the version and the milliseconds.

    The limit stands inside, before anything is left out, so that it bounds what is
    read and not only what is found.
    """
    quoted = connection.ops.quote_name
    key = OutcomeRecord._meta.pk
    table = quoted(OutcomeRecord._meta.db_table)
    one = (
        "SELECT {n} AS part, version, first_content_ms FROM ("
        f"SELECT id, version, first_content_ms FROM {table} "
        "WHERE model = %s AND id >= %s AND id < %s "
        f"ORDER BY model DESC, id LIMIT {most}) AS rows_{{n}}"
    )
    values: list[Any] = []
    for bounds in parts:
        ids = (key.get_db_prep_value(id_at(edge), connection) for edge in bounds)
        values += [model, *ids]
    queries = (one.format(n=n) for n in range(len(parts)))
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(queries), values)
        return cast("list[tuple[int, str, float | None]]", cursor.fetchall())


def quantiles(values: list[float]) -> Quantiles:
    """By nearest rank: each is one of the values. At least one value."""
    values = sorted(values)
    n = len(values)

    def at(share: float) -> float:
        return values[max(0, math.ceil(share * n) - 1)]

    tail = n >= TAIL_LEAST
    return Quantiles(n, at(0.5), at(0.95) if tail else None, at(0.99) if tail else None)
