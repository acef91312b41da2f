"""A span of time cut into equal parts that a chart can show."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
# The longest span, and the oldest age, that each size is used for.
_STEPS = (
    (timedelta(hours=1), MINUTE),
    (timedelta(hours=6), 5 * MINUTE),
    (timedelta(days=8), HOUR),
)
_MINUTES_AGE = timedelta(days=7)
_DAYS_MOST = 400


@dataclass(frozen=True)
class Buckets:
    """Parts between neighbouring ``edges``, each with its beginning and without its
    end; ``now`` lies in the last one, or behind it."""

    edges: tuple[datetime, ...]
    step: timedelta
    now: datetime

    def __len__(self) -> int:
        return len(self.edges) - 1

    def place(self, moment: datetime) -> int | None:
        found = bisect_right(self.edges, moment) - 1
        return found if 0 <= found < len(self) else None

    @property
    def starts(self) -> tuple[datetime, ...]:
        return self.edges[:-1]

    @property
    def is_partial(self) -> bool:
        """Whether more will come in the last part."""
        return self.now < self.edges[-1]

    def seconds(self, place: int) -> float:
        """How much of a part is over; at least a second."""
        end = min(self.edges[place + 1], self.now)
        return max((end - self.edges[place]).total_seconds(), 1.0)


def buckets_make(
    *, since: datetime, until: datetime, now: datetime, zone: tzinfo
) -> Buckets:
    """Whole parts that hold the span: its first and last one may reach beyond it.

    Days are those of the zone; a span longer than counts are kept loses its beginning,
    and what lies ahead is left out.
    """
    until = min(until, now)
    since = max(min(since, until - MINUTE), until - _DAYS_MOST * DAY)
    step = _step(since, until, now)
    if step == DAY:
        return Buckets(_days(since, until, zone), step, now)
    size_s = int(step.total_seconds())
    first = int(since.timestamp()) // size_s
    last = -(-int(until.timestamp()) // size_s)
    edges = (datetime.fromtimestamp(n * size_s, UTC) for n in range(first, last + 1))
    return Buckets(tuple(edges), step, now)


def _step(since: datetime, until: datetime, now: datetime) -> timedelta:
    for longest, step in _STEPS:
        # Of longer ago there are hours only.
        old = step < HOUR and now - since > _MINUTES_AGE
        if until - since <= longest and not old:
            return step
    return DAY


def _days(since: datetime, until: datetime, zone: tzinfo) -> tuple[datetime, ...]:
    first = since.astimezone(zone).date()
    count = (until.astimezone(zone).date() - first).days + 1
    return tuple(_midnight(first + n * DAY, zone) for n in range(count + 1))


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)
