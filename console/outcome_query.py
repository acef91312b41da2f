"""The filters of the requests page, as they stand in its address.

Nothing is left out in silence: what cannot be understood is named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from django.http import QueryDict
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.outcome_words import ENDINGS
from console.time_range import SPANS, TimeRange, moment_text, time_range_read
from routing.selectors.outcomes import OutcomeFilter

NAMES: dict[str, Promise] = {
    "team": gettext_lazy("Team"),
    "key": gettext_lazy("Key"),
    "model": gettext_lazy("Model"),
    "version": gettext_lazy("Version"),
    "replica": gettext_lazy("Replica"),
}
_LABELS: dict[str, Promise] = {
    **NAMES,
    "range": gettext_lazy("Time"),
    "from": gettext_lazy("From"),
    "to": gettext_lazy("To"),
    "status": gettext_lazy("Status"),
    "ending": gettext_lazy("Ending"),
    "slow": gettext_lazy("Slow only"),
}
_STATUS = re.compile(r"([1-5])(xx)?|[1-5]\d\d", re.ASCII)
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
# The longest name there is: that of a replica.
_NAME_MOST = 220


@dataclass(frozen=True)
class Chip:
    """One filter that is in force; ``query`` is the address without it."""

    name: str
    label: str
    value: str
    query: str


@dataclass(frozen=True)
class Asked:
    """``given`` are the values as they stand in the address, for the form and for
    links; ``problems`` name those that were not understood and are not among them."""

    wanted: OutcomeFilter
    range: TimeRange
    given: dict[str, str]
    problems: list[str]

    def query(self, **more: str) -> str:
        return urlencode(self.given | more)

    @property
    def chips(self) -> list[Chip]:
        return [
            Chip(
                name,
                str(_LABELS[name]),
                self._shown(name, value),
                urlencode({n: v for n, v in self.given.items() if n != name}),
            )
            for name, value in self.given.items()
            if name in _LABELS
        ]

    def _shown(self, name: str, value: str) -> str:
        """The value of a filter as a person reads it."""
        if name == "range":
            return str(SPANS[value][1])
        if name in ("from", "to"):
            bound = self.range.since if name == "from" else self.range.until
            return moment_text(bound, self.range.zone) if bound else value
        return _chip_value(name, value)


def asked_read(
    query: QueryDict, *, zone: ZoneInfo, now: datetime | None = None
) -> Asked:
    span = time_range_read(query, zone=zone, now=now or timezone.now())
    given = dict(span.given)
    fields: dict[str, Any] = {"since": span.since, "until": span.until}
    problems: list[str] = []
    for name in _LABELS:
        text = query.get(name, "").strip()
        if not text or name in ("range", "from", "to"):
            continue
        try:
            fields |= _field(name, text)
        except ValueError:
            problems.append(
                _("%(label)s: “%(value)s” was not understood and is left out.")
                % {"label": _LABELS[name], "value": text[:80]}
            )
        else:
            given[name] = text
    return Asked(OutcomeFilter(**fields), span, given, problems)


def _field(name: str, text: str) -> dict[str, Any]:
    """Raises ``ValueError`` for what is no value of this filter."""
    if name == "status":
        return {"status": status_read(text)}
    if name == "ending" and text not in ENDINGS:
        raise ValueError(text)
    if name == "slow":
        if text != "1":
            raise ValueError(text)
        return {"slow": True}
    if len(text) > _NAME_MOST or "\0" in text:
        raise ValueError(text)
    return {name: text}


def status_read(text: str) -> int:
    """``503``, or for a class ``5`` or ``5xx``, which is answered as 5."""
    match = _STATUS.fullmatch(text.lower())
    if match is None:
        raise ValueError(text)
    return int(match[1] or text)


def request_id_read(text: str) -> UUID | None:
    """The request id in whatever was pasted, if there is one."""
    lowered = text[:400].lower()
    match = _UUID.search(lowered) or _ID.search(lowered)
    return UUID(match[0]) if match else None


def before_read(query: QueryDict, name: str) -> UUID | None:
    """The id that a page begins behind; anything else is the first page."""
    text = query.get(name, "")
    return UUID(text) if _ID.fullmatch(text) else None


def _chip_value(name: str, value: str) -> str:
    if name == "ending":
        return str(ENDINGS[value][1])
    if name == "status":
        return value if len(value) == 3 and value.isdigit() else f"{value[0]}xx"
    return "" if name == "slow" else value
