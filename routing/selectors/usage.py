"""Who used what, summed up from the exact counts.

Hours are grouped into days of the console's time zone. A figure that the exact counts
have is a plain sum of them, so parts add up to totals to the last token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any, cast

from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from routing.contracts.outcome import Ending
from routing.models import UsageHour

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
    *, wanted: UsageFilter, group: Sequence[str]
) -> QuerySet[UsageHour, dict[str, Any]]:
    """One dictionary per group, sorted by the columns of ``group`` in their order;
    beside them the names of ``FIGURES``. At least one column."""
    rows = _hours(wanted)
    if "day" in group:
        zone = wanted.zone or timezone.get_default_timezone()
        rows = rows.annotate(day=TruncDate("hour", tzinfo=zone))
    grouped = rows.values(*group).annotate(**_sums()).order_by(*group)
    return cast("QuerySet[UsageHour, dict[str, Any]]", grouped)


def usage_read(*, wanted: UsageFilter, group: Sequence[str]) -> list[UsageRow]:
    """Every group with its sums."""
    return [usage_row(row, group) for row in usage_rows(wanted=wanted, group=group)]


def usage_row(row: dict[str, Any], group: Sequence[str]) -> UsageRow:
    return UsageRow(
        {name: row[name] for name in group}, Used(*(row[name] for name in FIGURES))
    )


def usage_sum(rows: Iterable[UsageRow]) -> Used:
    return sum((row.used for row in rows), Used())


def usage_total(*, wanted: UsageFilter) -> Used:
    """All of it as one sum."""
    return usage_row(_hours(wanted).aggregate(**_sums()), ()).used


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


def _hours(wanted: UsageFilter) -> QuerySet[UsageHour]:
    zone = wanted.zone or timezone.get_default_timezone()
    since = datetime.combine(wanted.first, time(), zone)
    names = ("team", "key", "model", "version")
    named = {name: value for name in names if (value := getattr(wanted, name))}
    hours = UsageHour.objects.filter(hour__gte=since, **named)
    if wanted.last < date.max:
        until = datetime.combine(wanted.last + timedelta(days=1), time(), zone)
        hours = hours.filter(hour__lt=until)
    return hours
