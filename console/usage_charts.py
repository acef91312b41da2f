"""The usage page's charts: tokens and requests per day by what the table groups by."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta, tzinfo

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.figures import Axis, Chart, Series
from console.usage_query import COLUMNS, UsageAsked
from routing.selectors.keys import key_names
from routing.selectors.usage import (
    UsageFilter,
    UsageRow,
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


def charts(asked: UsageAsked, *, now: datetime) -> list[Chart]:
    group = tuple(name for name in COLUMNS[asked.by] if name != "day")
    rows = usage_read(wanted=asked.wanted, group=("day", *group))
    days = _days(asked, rows, timezone.localdate(now, _zone(asked)))
    names = _top(rows, group)
    titles = {of: of for of in names} | _titles(rows, group, names)
    return [_chart(name, asked, rows, group, titles, days, now) for name in NAMES]


def _name_of(row: UsageRow, group: Sequence[str]) -> str:
    return " / ".join(str(row.of[name]) or _("not known") for name in group)


def _titles(
    rows: list[UsageRow], group: Sequence[str], names: list[str]
) -> dict[str, str]:
    """What the series of these names are called: a key by its own name too, where
    there still is one; its id tells two of one name apart."""
    if "key" not in group:
        return {}
    ids = {of: row.of["key"] for row in rows if (of := _name_of(row, group)) in names}
    keys = key_names(ids=set(ids.values()))
    return {of: f"{of} {keys[id_]}" for of, id_ in ids.items() if id_ in keys}


def _top(rows: list[UsageRow], group: Sequence[str]) -> list[str]:
    """The names with the most tokens, the most first."""
    tokens: Counter[str] = Counter()
    for row in rows:
        # A request counts a little, so that names without tokens are in order too.
        tokens[_name_of(row, group)] += row.used.tokens * 1000 + row.used.requests
    return [name for name, _n in tokens.most_common(_TOP)]


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
    rows: list[UsageRow],
    group: Sequence[str],
    titles: dict[str, str],
    days: list[date],
    now: datetime,
) -> Chart:
    sums: dict[str, Counter[date]] = defaultdict(Counter)
    others = _("others")
    for row in rows:
        of = _name_of(row, group)
        used = row.used.tokens if name == "tokens" else row.used.requests
        sums[of if of in titles else others][row.of["day"]] += used
    series = [
        Series(title or str(TITLES[name]), [sums[of][day] for day in days], place)
        for place, (of, title) in enumerate([*titles.items(), (others, others)])
        if of in sums
    ]
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
        summary=_summary(name, rows),
        note=_before(name, asked, rows),
    )


def _summary(name: str, rows: list[UsageRow]) -> str:
    used = usage_sum(rows)
    if name == "tokens":
        n = used.tokens
        return ngettext("%(n)s token.", "%(n)s tokens.", n) % {"n": f"{n:,}"}
    n = used.requests
    return ngettext("%(n)s request.", "%(n)s requests.", n) % {"n": f"{n:,}"}


def _before(name: str, asked: UsageAsked, rows: list[UsageRow]) -> str:
    """The same number of days right before; nothing where these cannot be counted."""
    wanted = asked.wanted
    length = wanted.last - wanted.first + _DAY
    if length > timedelta(days=_DAYS_MOST) or wanted.first - date.min < length:
        return ""
    earlier = UsageFilter(
        first=wanted.first - length,
        last=wanted.first - _DAY,
        zone=wanted.zone,
        **{n: getattr(wanted, n) for n in ("team", "key", "model", "version")},
    )
    before = usage_total(wanted=earlier)
    used = usage_sum(rows)
    old = before.tokens if name == "tokens" else before.requests
    new = used.tokens if name == "tokens" else used.requests
    if not old:
        return _("The same number of days before: none.")
    values = {"n": f"{old:,}", "change": f"{(new - old) / old:+.0%}"}
    return _("The same number of days before: %(n)s; this is %(change)s.") % values
