"""The usage page's charts: tokens and requests per day by what the table groups by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta, tzinfo

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.figures import Axis, Chart, Series
from console.usage_query import COLUMNS, UsageAsked
from routing.selectors.keys import key_names
from routing.selectors.usage import (
    UsageRow,
    Used,
    usage_read,
    usage_sum,
    usage_total,
)

NAMES = ("tokens", "requests")
TITLES: dict[str, Promise] = {
    "tokens": gettext_lazy("Tokens"),
    "requests": gettext_lazy("Requests"),
}
_TOP = 5
_DAYS_MOST = 800
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class _Found:
    """``of`` holds the names with the most tokens, the most first, each with its days;
    ``total`` all days, ``more`` whether there are further names."""

    total: list[UsageRow]
    of: dict[str, list[UsageRow]]
    more: bool
    before: Used | None


def charts(asked: UsageAsked, *, now: datetime) -> list[Chart]:
    found = _read(asked)
    days = _days(asked, found.total, timezone.localdate(now, _zone(asked)))
    return [_chart(name, asked, found, days, now) for name in NAMES]


def _read(asked: UsageAsked) -> _Found:
    """Days are read of the names that get a colour only: there may be thousands."""
    total = usage_read(wanted=asked.wanted, group=("day",))
    group = tuple(name for name in COLUMNS[asked.by] if name != "day")
    if not group:
        return _Found(total, {"": total}, False, _before(asked))
    rows = usage_read(wanted=asked.wanted, group=group)
    # A request counts a little, so that names without tokens are in order too.
    rows.sort(key=lambda row: -(row.used.tokens * 1000 + row.used.requests))
    of: dict[str, list[UsageRow]] = {_name_of(row, group): [] for row in rows[:_TOP]}
    for row in usage_read(
        wanted=asked.wanted, group=("day", *group), only=[r.of for r in rows[:_TOP]]
    ):
        of[_name_of(row, group)].append(row)
    titled = _titled(of, rows[:_TOP], group)
    return _Found(total, titled, len(rows) > _TOP, _before(asked))


def _titled(
    of: dict[str, list[UsageRow]], top: list[UsageRow], group: Sequence[str]
) -> dict[str, list[UsageRow]]:
    """What the series are called: a key by its own name too, where there still is one;
    its id tells two of one name apart."""
    if "key" not in group:
        return of
    ids = {_name_of(row, group): row.of["key"] for row in top}
    keys = key_names(ids=set(ids.values()))
    return {
        f"{name} {keys[ids[name]]}" if ids[name] in keys else name: rows
        for name, rows in of.items()
    }


def _name_of(row: UsageRow, group: Sequence[str]) -> str:
    return " / ".join(str(row.of[name]) or _("not known") for name in group)


def _zone(asked: UsageAsked) -> tzinfo:
    return asked.wanted.zone or timezone.get_default_timezone()


def _days(asked: UsageAsked, rows: list[UsageRow], today: date) -> list[date]:
    """Every day of the span up to today; of an endless one those that have counts."""
    counted = [row.of["day"] for row in rows]
    last = min(asked.wanted.last, max([today, *counted]))
    first = min(asked.wanted.first, last)
    if (last - first).days > _DAYS_MOST:
        first = min(counted, default=last)
    return [first + n * _DAY for n in range((last - first).days + 1)]


def _chart(
    name: str,
    asked: UsageAsked,
    found: _Found,
    days: list[date],
    now: datetime,
) -> Chart:
    used = {of: _by_day(name, rows) for of, rows in found.of.items()}
    series = [
        Series(of or str(TITLES[name]), [sums[day] for day in days], place)
        for place, (of, sums) in enumerate(used.items())
    ]
    if found.more:
        rest = _by_day(name, found.total)
        for sums in used.values():
            rest.subtract(sums)
        # What was counted between two reads is nobody's.
        values = [max(rest[day], 0) for day in days]
        series.append(Series(_("others"), values, _TOP))
    zone = _zone(asked)
    starts = [datetime.combine(day, time(), zone) for day in days]
    return Chart(
        name=name,
        title=str(TITLES[name]),
        unit=_("per day"),
        kind="bars",
        axis=Axis(starts, starts[-1] + _DAY, _DAY, now, zone),
        series=series,
        time_word=_("Day"),
        summary=_summary(name, found.total),
        note=_compared(name, found),
    )


def _by_day(name: str, rows: list[UsageRow]) -> Counter[date]:
    return Counter({row.of["day"]: _figure(name, row.used) for row in rows})


def _figure(name: str, used: Used) -> int:
    return used.tokens if name == "tokens" else used.requests


def _summary(name: str, rows: list[UsageRow]) -> str:
    used = usage_sum(rows)
    if name == "tokens":
        n = used.tokens
        return ngettext("%(n)s token.", "%(n)s tokens.", n) % {"n": f"{n:,}"}
    n = used.requests
    return ngettext("%(n)s request.", "%(n)s requests.", n) % {"n": f"{n:,}"}


def _before(asked: UsageAsked) -> Used | None:
    """The same number of days right before; None where these cannot be counted."""
    wanted = asked.wanted
    length = wanted.last - wanted.first + _DAY
    if length > timedelta(days=_DAYS_MOST) or wanted.first - date.min < length:
        return None
    first, last = wanted.first - length, wanted.first - _DAY
    return usage_total(wanted=replace(wanted, first=first, last=last))


def _compared(name: str, found: _Found) -> str:
    if found.before is None:
        return ""
    old = _figure(name, found.before)
    if not old:
        return _("The same number of days before: none.")
    new = _figure(name, usage_sum(found.total))
    values = {"n": f"{old:,}", "change": f"{(new - old) / old:+.0%}"}
    return _("The same number of days before: %(n)s; this is %(change)s.") % values
