"""The last hour of every model, by the minute, in one query: for the first screen."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Q, Sum
from django.utils import timezone

from routing.models import TrafficMinute
from routing.selectors.usage import ERRORS

MINUTES = 60
_RATE_MINUTES = 5
_SHARE_MINUTES = 15


@dataclass(frozen=True)
class _Minute:
    requests: int = 0
    errors: int = 0
    tokens: int = 0
    ttft_ms: int = 0
    ttft_count: int = 0


@dataclass
class Pulse:
    """Whole minutes, the oldest first; the running one is not among them."""

    minutes: list[_Minute] = field(default_factory=lambda: [_Minute()] * MINUTES)

    @property
    def points(self) -> list[int]:
        return [minute.requests for minute in self.minutes]

    @property
    def per_minute(self) -> float:
        """Requests a minute over the last five."""
        return sum(self.points[-_RATE_MINUTES:]) / _RATE_MINUTES

    @property
    def requests(self) -> int:
        """Over the last quarter of an hour, as the figures below."""
        return sum(self.points[-_SHARE_MINUTES:])

    @property
    def error_share(self) -> float | None:
        """Of one; None without a request."""
        errors = sum(minute.errors for minute in self.minutes[-_SHARE_MINUTES:])
        return errors / self.requests if self.requests else None

    @property
    def ttft_ms(self) -> float | None:
        """The mean time to first token; None where nothing was streamed."""
        recent = self.minutes[-_SHARE_MINUTES:]
        count = sum(minute.ttft_count for minute in recent)
        return sum(minute.ttft_ms for minute in recent) / count if count else None

    @property
    def tokens_per_s(self) -> float:
        """Tokens out, over the last five minutes."""
        tokens = sum(minute.tokens for minute in self.minutes[-_RATE_MINUTES:])
        return tokens / _RATE_MINUTES / 60


def pulse_list(*, now: datetime | None = None) -> dict[str, Pulse]:
    """By model; one that had no request is not among them."""
    end = (now or timezone.now()).replace(second=0, microsecond=0)
    start = end - timedelta(minutes=MINUTES)
    rows = (
        TrafficMinute.objects.filter(minute__gte=start, minute__lt=end)
        .exclude(model="")
        .values("model", "minute")
        .annotate(
            n=Sum("requests"),
            bad=Sum("requests", filter=Q(ending__in=ERRORS), default=0),
            tokens=Sum("completion_tokens"),
            ttft=Sum("ttft_ms"),
            ttfts=Sum("ttft_count"),
        )
        .order_by()
    )
    found: dict[str, Pulse] = defaultdict(Pulse)
    for row in rows:
        place = int((row["minute"] - start) / timedelta(minutes=1))
        found[row["model"]].minutes[place] = _Minute(
            row["n"], row["bad"], row["tokens"], row["ttft"], row["ttfts"]
        )
    return dict(found)
