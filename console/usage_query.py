"""What a page or a file of usage is asked for, as it stands in its address."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from urllib.parse import urlencode

from django.http import QueryDict
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from routing.selectors.usage import UsageFilter

SPANS: dict[str, tuple[int, Promise]] = {
    "1d": (1, gettext_lazy("Today")),
    "7d": (7, gettext_lazy("7 days")),
    "30d": (30, gettext_lazy("30 days")),
    "90d": (90, gettext_lazy("90 days")),
    "365d": (365, gettext_lazy("A year")),
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
    span: str
    given: dict[str, str]
    problems: list[str]

    def query(self, **changes: str) -> str:
        """The address with some values changed; an empty one is left out."""
        return urlencode({n: v for n, v in (self.given | changes).items() if v})


def usage_asked_read(query: QueryDict, *, today: date | None = None) -> UsageAsked:
    today = today or timezone.localdate(timezone=timezone.get_default_timezone())
    problems: list[str] = []
    given = {n: t for n in _NAMES if (t := _name(query.get(n, ""), problems))}
    by = query.get("by", "day")
    if by not in GROUPINGS:
        problems.append(_("There is no such grouping: “%(by)s”.") % {"by": by[:80]})
        by = "day"
    first, last, span = _days(query, today, problems)
    dates = (
        {"from": f"{first}", "to": f"{last}"} if span == "custom" else {"last": span}
    )
    wanted = UsageFilter(first=first, last=last, **given)
    return UsageAsked(wanted, by, span, {"by": by} | dates | given, problems)


def _days(query: QueryDict, today: date, problems: list[str]) -> tuple[date, date, str]:
    """The first and the last day, and the name of the span or ``custom``."""
    texts = query.get("from", "").strip(), query.get("to", "").strip()
    if any(texts):
        try:
            last = date.fromisoformat(texts[1]) if texts[1] else today
            first = date.fromisoformat(texts[0]) if texts[0] else last
        except ValueError:
            problems.append(_("Write days like 2026-11-30."))
        else:
            if first <= last:
                return first, last, "custom"
            problems.append(_("The first day lies behind the last one."))
    span = query.get("last", SPAN_USUAL)
    if span not in SPANS:
        problems.append(_("There is no such span: “%(span)s”.") % {"span": span[:80]})
        span = SPAN_USUAL
    return today - timedelta(days=SPANS[span][0] - 1), today, span


def _name(text: str, problems: list[str]) -> str:
    text = text.strip()
    if len(text) <= _NAME_MOST and "\0" not in text:
        return text
    problems.append(_("Nothing is called “%(name)s”.") % {"name": text[:80]})
    return ""
