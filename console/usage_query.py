"""What a page or a file of usage is asked for, as it stands in its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import QueryDict
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.time_range import NAMES, TimeRange, time_range_read
from routing.selectors.usage import UsageFilter

SPANS: dict[str, tuple[timedelta, Promise]] = {
    "1d": (timedelta(days=1), gettext_lazy("Today")),
    "7d": (timedelta(days=7), gettext_lazy("7 days")),
    "30d": (timedelta(days=30), gettext_lazy("30 days")),
    "90d": (timedelta(days=90), gettext_lazy("90 days")),
    "365d": (timedelta(days=365), gettext_lazy("A year")),
}
SPAN_USUAL = "30d"
GROUPINGS: dict[str, Promise] = {
    "day": gettext_lazy("By day"),
    "team": gettext_lazy("By team"),
    "key": gettext_lazy("By key"),
    "model": gettext_lazy("By model"),
    "version": gettext_lazy("By version"),
}
# A version's name says little without its model, a key's without its team.
COLUMNS = {
    "day": ("day",),
    "team": ("team",),
    "key": ("team", "key"),
    "model": ("model",),
    "version": ("model", "version"),
}
_NAMES = ("team", "key", "model", "version")
_NAME_MOST = 100


@dataclass(frozen=True)
class UsageAsked:
    """``given`` are the values of the address that were understood."""

    wanted: UsageFilter
    by: str
    range: TimeRange
    given: dict[str, str]
    problems: list[str]

    def query(self, **changes: str) -> str:
        """The address with some values changed; an empty one is left out."""
        return urlencode({n: v for n, v in (self.given | changes).items() if v})


def usage_asked_read(
    query: QueryDict, *, zone: ZoneInfo, now: datetime | None = None
) -> UsageAsked:
    problems: list[str] = []
    given = {n: t for n in _NAMES if (t := _name(query.get(n, ""), problems))}
    by = query.get("by", "day")
    if by not in GROUPINGS:
        problems.append(_("There is no such grouping: “%(by)s”.") % {"by": by[:80]})
        by = "day"
    now = now or timezone.now()
    span = _range(query, zone, now)
    if not _has_whole_hours(span):
        problems.append(
            _(
                "Usage is counted by hours of UTC: days of the zone %(zone)s cannot be "
                "told apart. Days are those of UTC."
            )
            % {"zone": span.zone.key}
        )
        span = _range(
            {n: query.get(n, "") for n in NAMES} | {"zone": "UTC"}, ZoneInfo("UTC"), now
        )
    if span.days is None:
        raise AssertionError("a range of days has two ends")
    first, last = span.days
    wanted = UsageFilter(first=first, last=last, zone=span.zone, **given)
    return UsageAsked(wanted, by, span, {"by": by} | span.given | given, problems)


def _range(query: Mapping[str, str], zone: ZoneInfo, now: datetime) -> TimeRange:
    return time_range_read(
        query, zone=zone, now=now, usual=SPAN_USUAL, spans=SPANS, by_day=True
    )


def _has_whole_hours(span: TimeRange) -> bool:
    """Whether the days of the zone begin where an hour of UTC does."""
    ends = (span.since or datetime.now(UTC), span.until or datetime.now(UTC))
    offsets = (end.astimezone(span.zone).utcoffset() or timedelta() for end in ends)
    return not any(offset % timedelta(hours=1) for offset in offsets)


def _name(text: str, problems: list[str]) -> str:
    text = text.strip()
    if len(text) <= _NAME_MOST and "\0" not in text:
        return text
    problems.append(_("Nothing is called “%(name)s”.") % {"name": text[:80]})
    return ""
