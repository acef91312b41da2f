"""Outcomes by what they have in common, and one by its id.

Ids sort by time, so a span of time is a span of ids, and pages go by id. Each filter
that is rare enough to matter has an index in the order of ids. With one such filter a
page is read straight from its index. With more, the one that was rarest lately leads:
its rows are read in chunks, newest first, and held against the others. A search ends
with a full page, at the end of the data, or when its time is up; then it says how far
it came, and can be taken up there. So no combination scans for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from routing.contracts.outcome import Ending, Outcome, outcome_decode
from routing.models import OutcomeRecord

# Chunks grow: the first ones make sure that a common combination is found at once.
_CHUNK_FIRST = 2_000
_CHUNK_MOST = 16_000
# A search is given up after half of it: the next chunk may take as long as all before.
SEARCH_S = 0.16
_RANDOM_BITS = 80
_MS_MOST = 2**48 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class OutcomeFilter:
    """What outcomes must have in common; an empty field asks for nothing.

    ``since`` is included, ``until`` is not. ``status`` is one status, or one digit
    for its class: 4 stands for 400 to 499.
    """

    since: datetime | None = None
    until: datetime | None = None
    team: str = ""
    key: str = ""
    model: str = ""
    version: str = ""
    replica: str = ""
    status: int | None = None
    ending: str = ""
    slow: bool = False

    @property
    def is_empty(self) -> bool:
        return self == OutcomeFilter()


@dataclass(frozen=True)
class Found:
    """A page of outcomes, newest first.

    ``more`` says whether the search could go on beyond its last row; ``reached`` is
    the id up to which everything was looked at when it ended early for lack of time.
    """

    rows: list[OutcomeRecord]
    more: bool
    reached: UUID | None = None


@dataclass(frozen=True)
class _Lead:
    """A filter with an index of its own, in whose order rows are read."""

    condition: Q
    column: str = ""

    def rows(self, span: Q, *, newest_first: bool) -> QuerySet[OutcomeRecord]:
        fits = OutcomeRecord.objects.filter(self.condition, span)
        return fits.order_by(*self.order_by(newest_first))

    def order_by(self, newest_first: bool) -> list[str]:
        """An index that is read backwards is reversed in both of its columns."""
        if newest_first:
            return [*filter(None, [self.column]), "-id"]
        return [*(f"-{name}" for name in [self.column] if name), "id"]


def outcome_get(*, request_id: UUID) -> OutcomeRecord | None:
    """The outcome with this id, over all that is kept, whatever any filter says."""
    return OutcomeRecord.objects.filter(pk=request_id).first()


def outcome_read(row: OutcomeRecord) -> Outcome | None:
    """The whole outcome of a row; None when another release wrote it."""
    try:
        return outcome_decode(bytes(row.body))
    except msgspec.DecodeError:
        return None


def outcome_oldest() -> OutcomeRecord | None:
    """The oldest outcome that is kept."""
    return OutcomeRecord.objects.order_by("id").first()


def outcome_list(
    *,
    wanted: OutcomeFilter,
    limit: int,
    before: UUID | None = None,
    after: UUID | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """The newest outcomes that fit, or with ``after`` the oldest ones above it.

    ``before`` and ``after`` are ids that are left out themselves; ``clock`` measures
    how long the search takes, in seconds.
    """
    newest_first = after is None
    span = _span(wanted, before, after)
    leads = _leads(wanted)
    with _by_index():
        if len(leads) == 1 and not _rest(wanted):
            rows = list(leads[0].rows(span, newest_first=newest_first)[: limit + 1])
            return _found(rows[:limit], len(rows) > limit, None, newest_first)
        until = clock() + SEARCH_S / 2
        return _search(
            _rarest(leads, span, newest_first),
            _conditions(wanted),
            span,
            limit=limit,
            newest_first=newest_first,
            go_on=lambda: clock() < until,
        )


@contextmanager
def _by_index() -> Iterator[None]:
    """Let PostgreSQL read in the order of an index, never sort what it collected:
    where it takes many rows for few, that would be all of them."""
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SET LOCAL enable_sort = off; SET LOCAL enable_incremental_sort = off;"
            "SET LOCAL enable_bitmapscan = off"
        )
        yield


def id_at(moment: datetime) -> UUID:
    """The lowest id of a request that arrived at this time or later."""
    ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=min(max(ms, 0), _MS_MOST) << _RANDOM_BITS)


def id_moment(request_id: UUID) -> datetime | None:
    """When the request with this id arrived; None for a year that there is not."""
    try:
        return _EPOCH + timedelta(milliseconds=request_id.int >> _RANDOM_BITS)
    except OverflowError:
        return None


def _span(wanted: OutcomeFilter, before: UUID | None, after: UUID | None) -> Q:
    span = Q()
    if wanted.since:
        span &= Q(id__gte=id_at(wanted.since))
    if wanted.until:
        span &= Q(id__lt=id_at(wanted.until))
    if before is not None:
        span &= Q(id__lt=before)
    if after is not None:
        span &= Q(id__gt=after)
    return span


_LEADING = ("replica", "key", "team", "model")


def _leads(wanted: OutcomeFilter) -> list[_Lead]:
    """The filters that have an index, or that of all rows."""
    leads = [
        _one_value(name, getattr(wanted, name))
        for name in _LEADING
        if getattr(wanted, name)
    ]
    failed = ~Q(ending=Ending.COMPLETED)
    if wanted.ending and wanted.ending != Ending.COMPLETED:
        one = _one_value("ending", wanted.ending)
        leads.append(replace(one, condition=one.condition & failed))
    elif wanted.status is not None and _least_status(wanted.status) >= 400:
        # No request with such an answer was completed.
        leads.append(_Lead(failed))
    if wanted.slow:
        leads.append(_Lead(Q(slow=True)))
    return leads or [_Lead(Q())]


def _one_value(name: str, value: str) -> _Lead:
    """Rows with one value, by the index that has them in order.

    PostgreSQL, told of one value, may as well walk all rows by id, believing that a
    replica of last week is somewhere near. A range of one value, sorted by the value
    first, leaves it no other index, and is entered at the id as well.
    """
    if connection.vendor == "postgresql":
        return _Lead(Q(**{f"{name}__gte": value, f"{name}__lte": value}), name)
    return _Lead(Q(**{name: value}), name)


def _rest(wanted: OutcomeFilter) -> bool:
    """Whether a filter is asked for that no index has in order."""
    return (
        bool(wanted.version)
        or wanted.status is not None
        or wanted.ending == Ending.COMPLETED
    )


def _rarest(leads: list[_Lead], span: Q, newest_first: bool) -> _Lead:
    """The filter whose first rows reach furthest: it has the fewest to look at."""
    if len(leads) == 1:
        return leads[0]
    reach: list[tuple[int, _Lead]] = []
    for lead in leads:
        last = _id_of(lead.rows(span, newest_first=newest_first), _CHUNK_FIRST)
        if last is None:
            return lead
        reach.append((last.int, lead))
    furthest = min if newest_first else max
    return furthest(reach, key=lambda one: one[0])[1]


def _id_of(rows: QuerySet[OutcomeRecord], place: int) -> UUID | None:
    """The id of the row at a place counted from 1; None when there are fewer."""
    ids = rows.values_list("pk", flat=True)[place - 1 : place]
    return next(iter(ids), None)


def _least_status(status: int) -> int:
    return status * 100 if status < 10 else status


def _conditions(wanted: OutcomeFilter) -> tuple[str, list[Any]]:
    """Every filter but the time, as SQL on the columns of a chunk."""
    quoted = connection.ops.quote_name
    parts: list[str] = []
    values: list[Any] = []
    for name in (*_LEADING, "version", "ending"):
        if value := getattr(wanted, name):
            parts.append(f"{quoted(name)} = %s")
            values.append(value)
    if wanted.status is not None:
        least = _least_status(wanted.status)
        parts.append(f"{quoted('status')} BETWEEN %s AND %s")
        values += [least, least + 99 if wanted.status < 10 else least]
    if wanted.slow:
        parts.append(quoted("slow"))
    return " AND ".join(parts) or "1 = 1", values


def _search(
    lead: _Lead,
    conditions: tuple[str, list[Any]],
    span: Q,
    *,
    limit: int,
    newest_first: bool,
    go_on: Callable[[], bool],
) -> Found:
    rows: list[OutcomeRecord] = []
    reached: UUID | None = None
    for size in _sizes():
        beyond = Q() if reached is None else _beyond(reached, newest_first)
        chunk = lead.rows(span & beyond, newest_first=newest_first)
        order = lead.order_by(newest_first)
        rows += _chunk_read(chunk[:size], order, conditions, limit + 1 - len(rows))
        if len(rows) > limit:
            return _found(rows[:limit], True, None, newest_first)
        reached = _id_of(chunk, size)
        if reached is None:
            return _found(rows, False, None, newest_first)
        if not go_on():
            break
    return _found(rows, True, reached, newest_first)


def _sizes() -> Iterator[int]:
    size = _CHUNK_FIRST
    while True:
        yield size
        size = min(size * 2, _CHUNK_MOST)


def _beyond(reached: UUID, newest_first: bool) -> Q:
    return Q(id__lt=reached) if newest_first else Q(id__gt=reached)


def _chunk_read(
    chunk: QuerySet[OutcomeRecord],
    order_by: list[str],
    conditions: tuple[str, list[Any]],
    limit: int,
) -> list[OutcomeRecord]:
    """The rows of a chunk that fit, in its order.

    Written as SQL because a slice cannot be filtered any more, and the slice is the
    point: it bounds what is read whatever the planner believes.
    """
    inner, inner_values = chunk.query.sql_with_params()
    fits, values = conditions
    # The same order as inside: nothing is sorted, and reading stops when it is enough.
    order = ", ".join(
        f"{connection.ops.quote_name(name.lstrip('-'))} "
        f"{'DESC' if name.startswith('-') else 'ASC'}"
        for name in order_by
    )
    sql = f"SELECT * FROM ({inner}) chunk WHERE {fits} ORDER BY {order} LIMIT %s"
    return list(OutcomeRecord.objects.raw(sql, [*inner_values, *values, limit]))


def _found(
    rows: list[OutcomeRecord], more: bool, reached: UUID | None, newest_first: bool
) -> Found:
    return Found(rows if newest_first else rows[::-1], more, reached)
