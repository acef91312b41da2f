"""A span of time as an address says it: ``?range=24h``, or ``?from=&to=`` with
``?zone=``. Pure: the moment that counts as now, and the reader's zone, are given.

Spans are half open: the beginning belongs to them, the end does not. A wall time
without an offset is one of the zone. Where clocks are set back it names two instants,
where they are set forward none; the span is then the longer one that fits, so that
it never holds less than what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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
NAMES = ("range", "from", "to", "zone")
# Beyond these, an instant has no wall time in some zone.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)
_UTC = ZoneInfo("UTC")


def zone_read(text: str) -> ZoneInfo:
    """The zone of an IANA name; raises ``ValueError`` where there is none."""
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, OSError, ValueError):
        raise ValueError(text) from None


def zone_of(user: object) -> ZoneInfo:
    """The zone that a person chose, else UTC."""
    try:
        return zone_read(getattr(user, "time_zone", "") or "UTC")
    except ValueError:
        return _UTC


def offset_text(moment: datetime) -> str:
    """The zone of an instant as its distance from UTC, which no letters can: half the
    world calls its zone CST."""
    minutes = round((moment.utcoffset() or timedelta()).total_seconds() / 60)
    if not minutes:
        return "UTC"
    hours, rest = divmod(abs(minutes), 60)
    sign = "+" if minutes > 0 else "\u2212"
    return f"UTC{sign}{hours}" + (f":{rest:02}" if rest else "")


def moment_text(moment: datetime, zone: ZoneInfo) -> str:
    local = moment.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S} {offset_text(local)}"


@dataclass(frozen=True)
class TimeRange:
    """``since`` is included, ``until`` is not; None is no bound. ``name`` is that of a
    quick range, ``custom``, or empty for all time. ``errors`` say by field what was
    not understood; such a range is the usual one. ``given`` are the values of the
    address that lead here, ``written`` what stood in the fields."""

    zone: ZoneInfo
    name: str = ""
    since: datetime | None = None
    until: datetime | None = None
    given: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def days(self) -> tuple[date, date] | None:
        """The first and the last day of the zone that it touches."""
        if self.since is None or self.until is None:
            return None
        last = self.until - timedelta(microseconds=1)
        return self.since.astimezone(self.zone).date(), last.astimezone(
            self.zone
        ).date()


def time_range_read(
    query: Mapping[str, str],
    *,
    zone: ZoneInfo,
    now: datetime,
    usual: str = "",
    spans: Mapping[str, tuple[timedelta, Promise]] = SPANS,
    by_day: bool = False,
) -> TimeRange:
    """The range that an address asks for, else the ``usual`` one.

    ``by_day`` makes every range one of whole days of the zone: ``7d`` are today and
    the six days before, and a day in ``to`` belongs to it.
    """
    errors: dict[str, str] = {}
    zone = _zone(query, zone, errors)
    texts = {name: query.get(name, "").strip()[:64] for name in ("from", "to")}
    if any(texts.values()):
        found = _custom(texts, zone, now, errors, by_day=by_day)
        if found is not None:
            given = {n: t for n, t in texts.items() if t} | {"zone": zone.key}
            return TimeRange(zone, "custom", *found, given, texts, errors)
    # Once it was called ``last``: addresses that people keep go on working.
    name = (query.get("range", "") or query.get("last", "")).strip()
    if name and name not in spans:
        errors["range"] = _("There is no such span: “%(span)s”.") % {"span": name[:80]}
        name = ""
    given = {"range": name} if name else {}
    if query.get("zone") and "zone" not in errors:
        given["zone"] = zone.key
    name = name or usual
    since, until = _quick(spans[name][0], zone, now, by_day) if name else (None, None)
    return TimeRange(zone, name, since, until, given, texts, errors)


def _zone(query: Mapping[str, str], zone: ZoneInfo, errors: dict[str, str]) -> ZoneInfo:
    if text := query.get("zone", "").strip():
        try:
            return zone_read(text)
        except ValueError:
            errors["zone"] = _("There is no such time zone: “%(zone)s”.") % {
                "zone": text[:80]
            }
    return zone


def _quick(
    span: timedelta, zone: ZoneInfo, now: datetime, by_day: bool
) -> tuple[datetime, datetime | None]:
    if not by_day:
        # Open at the end: what comes in while one looks belongs to it.
        return now - span, None
    today = now.astimezone(zone).date()
    first = today - (span - timedelta(days=1))
    return _midnight(first, zone), _midnight(today + timedelta(days=1), zone)


def _custom(
    texts: dict[str, str],
    zone: ZoneInfo,
    now: datetime,
    errors: dict[str, str],
    *,
    by_day: bool,
) -> tuple[datetime | None, datetime | None] | None:
    found: dict[str, datetime | None] = {}
    for name, text in texts.items():
        try:
            end = name == "to"
            found[name] = _moment(text, zone, end=end, by_day=by_day) if text else None
        except ValueError:
            example = "2026-11-30" if by_day else "2026-11-30T18:05"
            errors[name] = _("“%(text)s” is no time. Write it like %(example)s.") % {
                "text": text,
                "example": example,
            }
    if len(found) < len(texts):
        return None
    since, until = found["from"], found["to"]
    if by_day:
        until = until or _midnight(
            now.astimezone(zone).date() + timedelta(days=1), zone
        )
        since = since or until - timedelta(microseconds=1)
        since = _midnight(since.astimezone(zone).date(), zone)
    if since and until and since >= until:
        errors["to"] = _("The end lies before the beginning.")
        return None
    return since, until


def _moment(text: str, zone: ZoneInfo, *, end: bool, by_day: bool) -> datetime:
    """Raises ``ValueError`` for what is no time."""
    moment = datetime.fromisoformat(text)
    if end and by_day and "T" not in text and " " not in text and ":" not in text:
        if moment.date() >= _LATEST.date():
            return _LATEST
        moment += timedelta(days=1)
    if moment.tzinfo is None:
        return instant(moment, zone, latest=end)
    return _clamped(moment)


def instant(wall: datetime, zone: ZoneInfo, *, latest: bool = False) -> datetime:
    """The instant of a wall time; of the two that one may name, the earlier one, or
    the ``latest``."""
    both = [_clamped(wall.replace(tzinfo=zone, fold=fold)) for fold in (0, 1)]
    return max(both) if latest else min(both)


def _clamped(moment: datetime) -> datetime:
    try:
        return min(max(moment.astimezone(UTC), _EARLIEST), _LATEST)
    except OverflowError:
        return _EARLIEST if moment.year < 1970 else _LATEST


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return instant(datetime.combine(day, time()), zone)


@dataclass(frozen=True)
class Choice:
    words: str
    query: str
    current: bool


@dataclass(frozen=True)
class TimeControl:
    """What ``components/time_range.html`` shows. ``kept`` are the other values of the
    address, which a choice leaves as they are."""

    range: TimeRange
    quick: list[Choice]
    zones: list[Choice]
    from_text: str
    to_text: str
    kept: dict[str, str]
    by_day: bool


def time_control(
    chosen: TimeRange,
    kept: dict[str, str],
    *,
    own_zone: ZoneInfo,
    all_words: str = "",
    spans: Mapping[str, tuple[timedelta, Promise]] = SPANS,
    by_day: bool = False,
) -> TimeControl:
    """``all_words`` name the choice of no span, where there is one."""
    zone_kept = {n: v for n, v in chosen.given.items() if n == "zone"}
    names: Iterable[tuple[str, str]] = [(n, str(w)) for n, (_s, w) in spans.items()]
    if all_words:
        names = [("", all_words), *names]
    quick = [
        Choice(
            words,
            urlencode(kept | ({"range": name} if name else {}) | zone_kept),
            chosen.name == name,
        )
        for name, words in names
    ]
    zones = [
        Choice(key, urlencode(kept | chosen.given | {"zone": key}), key == at)
        for at in (chosen.zone.key,)
        for key in dict.fromkeys(("UTC", own_zone.key, at))
    ]
    return TimeControl(
        chosen,
        quick,
        zones if len(zones) > 1 else [],
        _field_text(chosen, "from", by_day),
        _field_text(chosen, "to", by_day),
        kept,
        by_day,
    )


def _field_text(chosen: TimeRange, name: str, by_day: bool) -> str:
    """The bound as a browser's field holds it. What the field cannot hold stands in
    the sentence beside it."""
    if name in chosen.errors:
        try:
            wall = datetime.fromisoformat(chosen.written[name])
        except ValueError:
            return ""
        return wall.isoformat(timespec="seconds")[: 10 if by_day else 19]
    if by_day and chosen.days:
        return chosen.days[name == "to"].isoformat()
    bound = chosen.since if name == "from" else chosen.until
    if bound is None or chosen.name != "custom":
        return ""
    return f"{bound.astimezone(chosen.zone):%Y-%m-%dT%H:%M:%S}"
