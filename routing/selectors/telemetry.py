"""What is known of outcomes and counts on their way into the database."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import redis
from django.db import DatabaseError
from django.db.models import Q
from django.utils import timezone

from cluster.live import redis_client
from routing.contracts import names
from routing.models import TelemetryCursor, TelemetrySource

LAG_ALARM_S = 30.0
LOSS_ALARM = timedelta(hours=1)
LOSS_SHOWN = timedelta(hours=24)


class Alarm(enum.StrEnum):
    """What somebody should look at; see ``telemetry_state``."""

    REDIS = "redis"
    DATABASE = "database"
    LAG = "lag"
    LOST = "lost"
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Telemetry:
    """Of gateway processes that are kept on record.

    ``lag_s`` is the age of the oldest outcome that waits in Redis, 0 for none and None
    while Redis does not say; ``stream_bytes`` what waits there. ``trouble`` is what
    the database said when it refused to take it within the last minute, empty for
    nothing; without ``readable`` it cannot even be read, and the figures after are
    unknown. ``sources`` are the gateways that lost something, or ended with requests
    open, within the last 24 h. ``lost`` counts rows over the life of these processes,
    of which the newest went at ``lost_at``: rows lost by the same process before that
    day are among them. ``foreign`` counts what no gateway wrote, ever.
    """

    alarms: tuple[Alarm, ...]
    lag_s: float | None
    stream_bytes: int | None
    trouble: str
    readable: bool
    sources: tuple[TelemetrySource, ...]
    lost: int
    lost_at: datetime | None
    unfinished: int
    foreign: int


def telemetry_state(*, now: datetime | None = None) -> Telemetry:
    """Everything about losses and delay, for ``/readyz``, ``/metrics`` and pages.

    Never raises because Redis or the database is away; then it is an alarm. The alarms:

    - ``REDIS``: Redis does not answer. Nothing is lost while the gateways have room.
    - ``DATABASE``: the database cannot be read, or refused what was to be taken in
      within the last minute. What the gateways send waits in Redis.
    - ``LAG``: the oldest outcome waits for more than ``LAG_ALARM_S``.
    - ``LOST``: rows of requests were lost within ``LOSS_ALARM``.
    - ``UNFINISHED``: a gateway ended with requests open, found within ``LOSS_ALARM``.
    """
    now = now or timezone.now()
    stream = _stream_state()
    database = _database_state(now - LOSS_SHOWN)
    trouble = database.trouble or (stream.trouble if stream else "")
    losers = [
        s for s in database.sources if s.lost_at and s.lost_at >= now - LOSS_SHOWN
    ]
    broken = [
        s
        for s in database.sources
        if s.unfinished and s.closed_at and s.closed_at >= now - LOSS_SHOWN
    ]
    lost_at = max((s.lost_at for s in losers if s.lost_at), default=None)
    broken_at = max((s.closed_at for s in broken if s.closed_at), default=None)
    alarms = {
        Alarm.REDIS: stream is None,
        Alarm.DATABASE: bool(trouble),
        Alarm.LAG: stream is not None and stream.lag_s > LAG_ALARM_S,
        Alarm.LOST: lost_at is not None and lost_at >= now - LOSS_ALARM,
        Alarm.UNFINISHED: broken_at is not None and broken_at >= now - LOSS_ALARM,
    }
    return Telemetry(
        alarms=tuple(alarm for alarm, raised in alarms.items() if raised),
        lag_s=stream.lag_s if stream else None,
        stream_bytes=stream.size if stream else None,
        trouble=trouble,
        readable=not database.trouble,
        sources=database.sources,
        lost=sum(source.lost for source in losers),
        lost_at=lost_at,
        unfinished=sum(source.unfinished for source in broken),
        foreign=database.foreign,
    )


def outcomes_lag_s() -> float | None:
    """The age of the oldest outcome that waits in Redis, 0 for none; None while Redis
    does not say."""
    stream = _stream_state()
    return stream.lag_s if stream else None


class _Stream(NamedTuple):
    lag_s: float
    size: int
    trouble: str


class _Database(NamedTuple):
    sources: tuple[TelemetrySource, ...]
    foreign: int
    trouble: str


def _stream_state() -> _Stream | None:
    """What Redis says, the lag by its own clock; None while it does not answer."""
    try:
        pipeline = redis_client().pipeline(transaction=False)
        pipeline.time()
        pipeline.xrange(names.OUTCOMES, count=1)
        pipeline.get(names.OUTCOMES_BYTES)
        pipeline.get(names.INGEST_TROUBLE)
        (seconds, micros), entries, size, trouble = pipeline.execute()
    except (redis.RedisError, ValueError):
        return None
    lag_s = 0.0
    if entries:
        written_at = int(entries[0][0].partition(b"-")[0]) / 1000
        # Ids stand still while a clock that jumped back catches up.
        lag_s = max(seconds + micros / 1e6 - written_at, 0.0)
    return _Stream(lag_s, int(size or 0), (trouble or b"").decode("utf-8", "replace"))


def _database_state(since: datetime) -> _Database:
    """The sources with something to tell since then, the newest first."""
    told = Q(lost_at__gte=since) | Q(closed_at__gte=since, unfinished__gt=0)
    try:
        sources = tuple(TelemetrySource.objects.filter(told).order_by("-lost_at", "pk"))
        cursor = TelemetryCursor.objects.filter(pk=1).first()
    except DatabaseError as error:
        return _Database((), 0, str(error) or "no answer")
    return _Database(sources, cursor.foreign if cursor else 0, "")
