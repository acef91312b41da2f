"""Who used what, summed up from the exact counts.

Hours are grouped into days of the console's time zone, or of the reader's. Whole days
of UTC are summed up already (``UsageDay``); only what such days do not cover is read by
the hour. A figure that the exact counts have is a plain sum of them, so parts add up to
totals to the last token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import reduce
from operator import or_
from typing import Any, cast
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from routing.contracts.outcome import Ending
from routing.models import UsageDay, UsageHour
from routing.selectors.hour_day import HourDay

_DAY = timedelta(days=1)
_INSTANT = timedelta(microseconds=1)
# Nothing is counted outside of them.
_FIRST, _LAST = date(1970, 1, 2), date(2200, 1, 1)
# Their days are those that are summed up already.
_DAYS_OF_UTC = (UTC, ZoneInfo("UTC"), ZoneInfo("Etc/UTC"))
GROUPS = ("day", "team", "key", "model", "version")
# A request that was refused, failed, broke off or took too long. A client that left
# is nobody's error.
ERRORS = (Ending.REFUSED, Ending.UPSTREAM_FAILED, Ending.TIMED_OUT, Ending.BROKEN)


@dataclass(frozen=True)
class Used:
    """Sums over requests. ``estimated`` counts those whose tokens are estimates,
    ``errors`` those that ended badly by no will of their client."""

    requests: int = 0
    errors: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    estimated: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def __add__(self, other: Used) -> Used:
        return Used(*(getattr(self, n) + getattr(other, n) for n in FIGURES))

    def __sub__(self, other: Used) -> Used:
        return Used(*(getattr(self, n) - getattr(other, n) for n in FIGURES))

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def error_share(self) -> float:
        return self.errors / self.requests if self.requests else 0.0


FIGURES = tuple(field.name for field in fields(Used))


@dataclass(frozen=True)
class UsageRow:
    """``of`` holds the values of the columns that rows are grouped by."""

    of: dict[str, Any]
    used: Used


@dataclass(frozen=True, kw_only=True)
class UsageFilter:
    """Both days are included. They are days of ``zone``, or of the console's own; one
    whose midnights lie within an hour would split what was counted as one."""

    first: date
    last: date
    team: str = ""
    key: str = ""
    model: str = ""
    version: str = ""
    zone: tzinfo | None = None


def usage_rows(
    *,
    wanted: UsageFilter,
    group: Sequence[str],
    only: Sequence[Mapping[str, str]] | None = None,
) -> QuerySet[Any, dict[str, Any]]:
    """One dictionary per group, sorted by the columns of ``group`` in their order;
    beside them the names of ``FIGURES``. At least one column. ``only`` are the names of
    the groups that are wanted, if not all."""
    rows: QuerySet[Any]
    if _zone(wanted) in _DAYS_OF_UTC:
        rows = _day_rows(wanted, wanted.first, wanted.last)
    else:
        rows = _hour_rows(wanted, *_span(wanted))
        if "day" in group:
            rows = rows.annotate(day=HourDay("hour", tzinfo=_zone(wanted)))
    return _grouped(_only(rows, only), group)


def usage_read(
    *,
    wanted: UsageFilter,
    group: Sequence[str],
    only: Sequence[Mapping[str, str]] | None = None,
) -> list[UsageRow]:
    """Every group with its sums, as ``usage_rows`` has them."""
    if "day" in group or _zone(wanted) in _DAYS_OF_UTC:
        found = usage_rows(wanted=wanted, group=group, only=only)
        return [usage_row(row, group) for row in found]
    sums: dict[tuple[Any, ...], Used] = {}
    for part in _parts(wanted):
        rows = _only(part, only)
        for row in (usage_row(one, group) for one in _grouped(rows, group)):
            where = tuple(row.of.values())
            sums[where] = sums.get(where, Used()) + row.used
    return [
        UsageRow(dict(zip(group, where, strict=True)), sums[where])
        for where in sorted(sums)
    ]


def usage_row(row: dict[str, Any], group: Sequence[str]) -> UsageRow:
    return UsageRow(
        {name: row[name] for name in group}, Used(*(row[name] for name in FIGURES))
    )


def usage_sum(rows: Iterable[UsageRow]) -> Used:
    return sum((row.used for row in rows), Used())


def usage_total(*, wanted: UsageFilter) -> Used:
    """All of it as one sum."""
    parts = (usage_row(part.aggregate(**_sums()), ()) for part in _parts(wanted))
    return usage_sum(parts)


def usage_lately(*, team: str = "", key: str = "", days: int = 30) -> Used:
    """What a team or a key used in the last days, today included."""
    first, last = _days(days)
    return usage_total(wanted=UsageFilter(first=first, last=last, team=team, key=key))


def usage_by_team(*, model: str, days: int = 30) -> list[UsageRow]:
    """Who used a model in the last days, today included, the busiest first."""
    first, last = _days(days)
    wanted = UsageFilter(first=first, last=last, model=model)
    rows = usage_read(wanted=wanted, group=("team",))
    return sorted(rows, key=lambda row: -row.used.requests)


def _days(count: int) -> tuple[date, date]:
    today = timezone.localdate(timezone=timezone.get_default_timezone())
    return today - timedelta(days=count - 1), today


def usage_newest_hour() -> datetime | None:
    """The beginning of the newest hour that has counts."""
    return UsageHour.objects.order_by("-hour").values_list("hour", flat=True).first()


def _sums() -> dict[str, Sum]:
    # Before the others: behind them, "requests" would mean their sum.
    sums = {"errors": Sum("requests", filter=Q(ending__in=ERRORS), default=0)}
    return sums | {n: Sum(n, default=0) for n in FIGURES if n != "errors"}


def _grouped(
    rows: QuerySet[Any], group: Sequence[str]
) -> QuerySet[Any, dict[str, Any]]:
    grouped = rows.values(*group).annotate(**_sums()).order_by(*group)
    return cast("QuerySet[Any, dict[str, Any]]", grouped)


def _only(
    rows: QuerySet[Any], groups: Sequence[Mapping[str, str]] | None
) -> QuerySet[Any]:
    if groups is None:
        return rows
    return rows.filter(reduce(or_, (Q(**of) for of in groups), Q(pk__in=[])))


def _zone(wanted: UsageFilter) -> tzinfo:
    return wanted.zone or timezone.get_default_timezone()


def _parts(wanted: UsageFilter) -> list[QuerySet[Any]]:
    """The rows of the span: its whole days of UTC, and the hours before and after."""
    if _zone(wanted) in _DAYS_OF_UTC:
        return [_day_rows(wanted, wanted.first, wanted.last)]
    since, until = (moment.astimezone(UTC) for moment in _span(wanted))
    first, end = (since - _INSTANT).date() + _DAY, until.date()
    if first >= end:
        return [_hour_rows(wanted, since, until)]
    midnights = (datetime.combine(day, time(), UTC) for day in (first, end))
    before, after = zip((since, until), midnights, strict=True)
    return [
        _day_rows(wanted, first, end - _DAY),
        _hour_rows(wanted, *before),
        _hour_rows(wanted, *reversed(after)),
    ]


def _span(wanted: UsageFilter) -> tuple[datetime, datetime]:
    """From the first midnight on and before the last one, within what can be counted:
    every zone can tell these moments."""
    first = min(max(wanted.first, _FIRST), _LAST)
    last = min(max(wanted.last, _FIRST), _LAST)
    zone = _zone(wanted)
    return (
        datetime.combine(first, time(), zone),
        datetime.combine(last + _DAY, time(), zone),
    )


def _named(wanted: UsageFilter) -> dict[str, str]:
    names = ("team", "key", "model", "version")
    return {name: value for name in names if (value := getattr(wanted, name))}


def _day_rows(wanted: UsageFilter, first: date, last: date) -> QuerySet[UsageDay]:
    return UsageDay.objects.filter(day__gte=first, day__lte=last, **_named(wanted))


def _hour_rows(
    wanted: UsageFilter, since: datetime, until: datetime
) -> QuerySet[UsageHour]:
    named = _named(wanted)
    return UsageHour.objects.filter(hour__gte=since, hour__lt=until, **named)
