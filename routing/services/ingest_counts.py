"""Counts from the gateways' hashes into the database, exactly.

The figures are absolute: what is stored of a cell says what its next figures add. So
the same write may be read any number of times, and a cell that is in the database may
leave the hash, however unfinished its minute: the gateway writes it again when it
grows.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import redis
from django.db import transaction
from django.db.models import F

from cluster.live import redis_client
from routing.contracts import names
from routing.contracts.counts import (
    COUNTS_DELETE,
    SEQ_FIELD,
    Cell,
    Figures,
    counts_read,
)
from routing.models import (
    GenerationServed,
    TelemetryCursor,
    TelemetrySource,
    TrafficMinute,
    UsageDay,
    UsageHour,
)
from routing.services.retention import MINUTES_KEPT
from routing.services.upsert import rows_upsert

log = logging.getLogger(__name__)

_CELLS_MOST = 1_000
_SEQ_MOST = 2**62
# Sums of as many requests as anyone can have.
_FIGURE_MOST = 10**15
_MINUTE_MOST = 4_000_000_000 // 60
_TEXTS_MOST = {
    "model": 100,
    "first_version": 100,
    "version": 100,
    "team": 63,
    "key": 12,
}
_CELL_COLUMNS = ("minute", "gateway", *Cell._fields[1:])
_USAGE_COLUMNS = ("team", "key", "model", "version", "ending")
_SERVED_COLUMNS = ("model", "generation", "gateway", "first_version", "version")


class _Waiting(NamedTuple):
    """What a gateway's hash holds: cells to take, in order, and fields (name and
    value) to remove, whether taken or not."""

    seq: int
    cells: list[Cell]
    figures: Mapping[Cell, Figures]
    raw: Mapping[Cell, tuple[bytes, bytes]]
    refused: list[tuple[bytes, bytes]]
    foreign: int


def counts_ingest(*, now: float, budget_s: float = 5.0) -> int:
    """Take what the gateways counted; how many cells grew. ``now`` in Unix seconds.

    Gateways with little to take come first, so that none waits for one with much.
    Raises ``redis.RedisError`` and ``DatabaseError``.
    """
    client = redis_client()
    until = time.monotonic() + budget_s
    members = cast("set[bytes]", client.smembers(names.COUNTS_GATEWAYS))
    sizes: list[tuple[int, str]] = []
    for member in members:
        try:
            gateway = member.decode("ascii")
            if not 0 < len(gateway) <= 64:
                raise ValueError
            sizes.append((client.hlen(names.counts(gateway)), gateway))
        except (ValueError, redis.ResponseError):
            # No gateway wrote this: neither its id nor what it names.
            client.srem(names.COUNTS_GATEWAYS, member)
            _foreign_count(1)
    return sum(_gateway_take(gateway, now, until) for _, gateway in sorted(sizes))


def _gateway_take(gateway: str, now: float, until: float) -> int:
    """In chunks while there is time; the last one moves the number of the write."""
    known = TelemetrySource.objects.filter(pk=gateway)
    seen = known.values_list("counts_seq", flat=True).first()
    waiting = _read(gateway, now)
    if waiting is None:
        return 0
    if seen is None:
        seen = TelemetrySource.objects.get_or_create(pk=gateway)[0].counts_seq
    grown = 0
    chunks = list(_chunks(waiting.cells))
    for number, chunk in enumerate(chunks, 1):
        if number > 1 and time.monotonic() > until:
            return grown
        seq = waiting.seq if number == len(chunks) else seen
        added = _write(gateway, seen, seq, {c: waiting.figures[c] for c in chunk})
        if added is None:
            return grown
        grown += added
        _delete(gateway, [waiting.raw[cell] for cell in chunk])
    if not chunks and waiting.seq != seen:
        _write(gateway, seen, waiting.seq, {})
    if waiting.refused:
        _foreign_count(waiting.foreign)
        _delete(gateway, waiting.refused)
    redis_client().hset(names.COUNTS_ACKS, gateway, waiting.seq)
    return grown


def _read(gateway: str, now: float) -> _Waiting | None:
    """None while nothing is written, as in a Redis that lost it."""
    fields = cast("dict[bytes, bytes]", redis_client().hgetall(names.counts(gateway)))
    if not fields:
        return None
    counts = counts_read(fields)
    good = {name for name, _ in counts.raw.values()} | {SEQ_FIELD.encode()}
    refused = [(name, value) for name, value in fields.items() if name not in good]
    oldest = (now - MINUTES_KEPT.total_seconds()) // 60 + 60
    cells: list[Cell] = []
    stale = 0
    for cell, figures in counts.cells.items():
        if not _possible(cell, figures):
            refused.append(counts.raw[cell])
        elif cell.minute < oldest:
            # What was stored of it may be gone: nobody could tell what it adds.
            stale += 1
            refused.append(counts.raw[cell])
        else:
            cells.append(cell)
    if stale:
        log.warning("%d counts of %s are too old to be taken", stale, gateway)
    seq = counts.seq if 0 <= counts.seq <= _SEQ_MOST else 0
    foreign = len(refused) - stale
    return _Waiting(seq, sorted(cells), counts.cells, counts.raw, refused, foreign)


def _possible(cell: Cell, figures: Figures) -> bool:
    """Whether a gateway can have counted this, and the columns hold it."""
    return (
        0 <= cell.minute <= _MINUTE_MOST
        and 0 <= cell.generation < 2**31
        and 0 <= cell.share_bp <= 10_000
        and all(0 <= figure <= _FIGURE_MOST for figure in figures)
        and all(
            len(text := getattr(cell, name)) <= most and "\0" not in text
            for name, most in _TEXTS_MOST.items()
        )
    )


def _chunks(cells: list[Cell]) -> Iterator[list[Cell]]:
    for start in range(0, len(cells), _CELLS_MOST):
        yield cells[start : start + _CELLS_MOST]


@transaction.atomic
def _write(
    gateway: str, seen: int, seq: int, cells: Mapping[Cell, Figures]
) -> int | None:
    """Store the cells and what they add; how many grew, None if another ingester was
    faster."""
    source = TelemetrySource.objects.filter(pk=gateway, counts_seq=seen)
    # Also where the number stays: on PostgreSQL the second one waits here.
    if not source.update(counts_seq=seq):
        return None
    stored = _stored(gateway, cells)
    added: dict[Cell, Figures] = {}
    for cell, figures in cells.items():
        before = stored.get(cell, Figures())
        # Lower figures were read before the ones that are stored.
        if all(new >= old for new, old in zip(figures, before, strict=True)):
            added[cell] = Figures(
                *(new - old for new, old in zip(figures, before, strict=True))
            )
    added = {cell: figures for cell, figures in added.items() if any(figures)}
    rows_upsert(
        TrafficMinute,
        keys=_CELL_COLUMNS,
        figures=Figures._fields,
        rows=[
            (_time(cell.minute), gateway, *_plain(cell)[1:], *cells[cell])
            for cell in added
        ],
        add=False,
    )
    _usage_grow(added)
    _served_grow(gateway, added)
    return len(added)


def _stored(gateway: str, cells: Iterable[Cell]) -> dict[Cell, Figures]:
    minutes = {_time(cell.minute) for cell in cells}
    rows = TrafficMinute.objects.filter(gateway=gateway, minute__in=minutes)
    width = len(Cell._fields)
    found: dict[Cell, Figures] = {}
    for minute, *rest in rows.values_list(
        "minute", *Cell._fields[1:], *Figures._fields
    ):
        cell = Cell(int(minute.timestamp()) // 60, *rest[: width - 1])
        found[cell] = Figures(*rest[width - 1 :])
    return found


def _usage_grow(added: Mapping[Cell, Figures]) -> None:
    hours, days = _Sums(), _Sums()
    for cell, figures in added.items():
        hour = _time(cell.minute - cell.minute % 60)
        names_ = (cell.team, cell.key, cell.model, cell.version, cell.ending.value)
        hours.add((hour, *names_), figures)
        days.add((hour.date(), *names_), figures)
    for model, name, sums in ((UsageHour, "hour", hours), (UsageDay, "day", days)):
        rows_upsert(
            model,
            keys=(name, *_USAGE_COLUMNS),
            figures=Figures._fields,
            rows=sums.rows,
            add=True,
        )


class _Sums:
    """Figures added up by what they are of."""

    def __init__(self) -> None:
        self._of: dict[tuple[Any, ...], list[int]] = {}

    def add(self, where: tuple[Any, ...], figures: Figures) -> None:
        known = self._of.setdefault(where, [0] * len(figures))
        known[:] = map(int.__add__, known, figures)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((*where, *figures) for where, figures in self._of.items())


def _served_grow(gateway: str, added: Mapping[Cell, Figures]) -> None:
    sums: Counter[tuple[str | int, ...]] = Counter()
    for cell, figures in added.items():
        if cell.first_version and cell.version and not cell.chosen:
            names_ = (cell.first_version, cell.version)
            sums[(cell.model, cell.generation, gateway, *names_)] += figures.requests
    rows_upsert(
        GenerationServed,
        keys=_SERVED_COLUMNS,
        figures=["requests"],
        rows=sorted((*key, requests) for key, requests in sums.items() if requests),
        add=True,
    )


def _plain(cell: Cell) -> tuple[object, ...]:
    return (*cell[:-1], cell.ending.value)


def _time(minute: int) -> datetime:
    return datetime.fromtimestamp(60 * minute, UTC)


def _delete(gateway: str, fields: Iterable[tuple[bytes, bytes]]) -> None:
    script = redis_client().register_script(COUNTS_DELETE)
    arguments = [part for field in fields for part in field]
    # A script's arguments have a bound of their own.
    for start in range(0, len(arguments), 2_000):
        part = arguments[start : start + 2_000]
        script(keys=[names.counts(gateway)], args=part)


def _foreign_count(count: int) -> None:
    if count:
        TelemetryCursor.objects.get_or_create(pk=1)
        TelemetryCursor.objects.filter(pk=1).update(foreign=F("foreign") + count)
