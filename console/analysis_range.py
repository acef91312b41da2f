"""The span of time that an address of an analysis page asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

SPANS: dict[str, tuple[timedelta, Promise]] = {
    "1h": (timedelta(hours=1), gettext_lazy("the last hour")),
    "6h": (timedelta(hours=6), gettext_lazy("the last 6 hours")),
    "24h": (timedelta(days=1), gettext_lazy("the last 24 hours")),
    "7d": (timedelta(days=7), gettext_lazy("the last 7 days")),
    "30d": (timedelta(days=30), gettext_lazy("the last 30 days")),
}
SPAN_USUAL = "24h"
_EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)


@dataclass(frozen=True)
class TimeRange:
    """``since`` is included, ``until`` is not; None is now. ``given`` are the values
    of the address that lead here."""

    zone: tzinfo
    name: str
    since: datetime
    until: datetime | None
    given: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def time_range_read(
    query: Mapping[str, str], *, zone: tzinfo, now: datetime, usual: str = SPAN_USUAL
) -> TimeRange:
    errors: dict[str, str] = {}
    texts = {n: t for n in ("from", "to") if (t := query.get(n, "").strip()[:64])}
    if texts:
        found = {n: m for n, t in texts.items() if (m := _moment(n, t, zone, errors))}
        until = found.get("to")
        since = found.get("from") or (until or now) - SPANS[usual][0]
        if not errors and since < (until or now):
            return TimeRange(zone, "custom", since, until, texts)
        if not errors:
            errors["to"] = _("The end lies before the beginning.")
    name = query.get("range", "").strip()
    if name and name not in SPANS:
        errors["range"] = _("There is no such span: “%(span)s”.") % {"span": name[:80]}
        name = ""
    given = {"range": name} if name else {}
    name = name or usual
    return TimeRange(zone, name, now - SPANS[name][0], None, given, errors)


def _moment(
    name: str, text: str, zone: tzinfo, errors: dict[str, str]
) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return min(max(moment.astimezone(UTC), _EARLIEST), _LATEST)
    except (ValueError, OverflowError):
        example = "2026-11-30T18:05"
        errors[name] = _("“%(text)s” is no time. Write it like %(example)s.") % {
            "text": text,
            "example": example,
        }
        return None
