"""Outcomes from the stream into the database: each row once, whatever happens.

What makes it exact is the numbers, not the stream: a gateway counts its outcomes from
1, and a row is taken only if its number is above the last one taken of that gateway.
Rows, these numbers and the cursor change in one transaction; acknowledging and
deleting in Redis come after it and may be repeated. So a crash between the two, a
stream that was emptied, a batch that was sent again and a second ingester all come to
the same: nothing twice, and what is missing is counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from cluster.live import redis_client
from routing.contracts import names
from routing.contracts.outcome import batch_read
from routing.models import ApiKey, TelemetryCursor, TelemetrySource
from routing.services import outcome_stream
from routing.services.outcome_rows import Line, line_read, rows_insert
from routing.services.outcome_stream import Entry, StreamRead, id_order
from routing.services.sources import source_reopen

# So many rows keep other writers of SQLite waiting for some tens of milliseconds.
_LINES_MOST = 500
# A gap as large as this is no gap: at 20 000 requests a second it is half a day.
GAP_MOST = 10**9
KEY_USE_EVERY = timedelta(seconds=30)


class Position(NamedTuple):
    """Up to where the stream was read, in which life of it."""

    epoch: str
    last_id: str


class Taken(NamedTuple):
    """The good lines of one batch, in the order of their numbers."""

    gateway: str
    first: int
    lines: list[Line]


def outcomes_ingest(*, budget_s: float = 0.8) -> int:
    """Take what the stream holds, for so long; how many rows that were.

    A second ingester that was faster makes this one return. Raises
    ``redis.RedisError`` and ``DatabaseError``: the next call goes on from there.
    """
    until = time.monotonic() + budget_s
    rows = 0
    while time.monotonic() < until:
        seen = _position()
        read = outcome_stream.stream_read()
        for portion in _portions(read.entries):
            moved = Position(read.epoch, portion[-1].id)
            taken = _take(seen, moved, portion, repeated=_repeated(seen, read))
            if taken is None:
                return rows
            rows, seen = rows + taken, moved
        if len(read.entries) < outcome_stream.ENTRIES_MOST:
            break
    return rows


def _position() -> Position:
    cursor, _ = TelemetryCursor.objects.get_or_create(pk=1)
    return Position(cursor.epoch, cursor.last_id)


def _repeated(seen: Position, read: StreamRead) -> str:
    """The id up to which the stream's entries were looked at before: left there by a
    crash after the commit. None was in a stream that began anew, which shows by its
    epoch, or by ids below the cursor after its clock jumped back."""
    anew = seen.epoch != read.epoch or id_order(read.end) < id_order(seen.last_id)
    return "0-0" if anew else seen.last_id


def _portions(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Entries in lots of about ``_LINES_MOST`` lines."""
    portion: list[Entry] = []
    lines = 0
    for entry in entries:
        portion.append(entry)
        lines += 1 + entry.fields.get(b"lines", b"").count(b"\n")
        if lines >= _LINES_MOST:
            yield portion
            portion, lines = [], 0
    if portion:
        yield portion


def _take(
    seen: Position, moved: Position, portion: list[Entry], *, repeated: str
) -> int | None:
    """One transaction, then what follows from it in Redis; None if the cursor is not
    where it was seen."""
    batches, foreign = _decode(portion, repeated)
    with transaction.atomic():
        # First of all: on PostgreSQL the second ingester waits here for the first.
        cursor = TelemetryCursor.objects.filter(pk=1)
        now = timezone.now()
        if not cursor.filter(**seen._asdict()).update(**moved._asdict(), moved_at=now):
            return None
        sources = _sources({batch.gateway for batch in batches})
        lines: list[Line] = []
        for batch in batches:
            fresh = _fresh(sources[batch.gateway], batch, now)
            foreign += len(batch.lines) if fresh is None else 0
            lines += fresh or ()
        rows_insert([line.row for line in lines])
        for source in sources.values():
            source.save(
                update_fields=[
                    *("last_outcome", "lost", "lost_at"),
                    *("unfinished", "closed_at"),
                ]
            )
        keys_used(lines, now=now)
        if foreign:
            cursor.update(foreign=F("foreign") + foreign)
    _acknowledge(sources.values())
    outcome_stream.stream_delete(portion)
    return len(lines)


def _decode(portion: Iterable[Entry], repeated: str) -> tuple[list[Taken], int]:
    """The good lines, and how many entries and lines no gateway wrote; those of
    repeated entries were counted before."""
    batches: list[Taken] = []
    foreign = 0
    for entry in portion:
        strange = 0
        try:
            batch = batch_read(dict(entry.fields))
        except ValueError:
            strange = 1
        else:
            lines: list[Line] = []
            for number, line in enumerate(batch.lines, batch.first):
                try:
                    lines.append(line_read(number, line, gateway=batch.gateway))
                except ValueError:
                    strange += 1
            if lines:
                batches.append(Taken(batch.gateway, batch.first, lines))
        if id_order(entry.id) > id_order(repeated):
            foreign += strange
    return batches, foreign


def _sources(gateways: set[str]) -> dict[str, TelemetrySource]:
    """The source of each gateway, locked until the transaction ends."""
    TelemetrySource.objects.bulk_create(
        [TelemetrySource(gateway=gateway) for gateway in sorted(gateways)],
        ignore_conflicts=True,
    )
    sources = TelemetrySource.objects.select_for_update().filter(pk__in=gateways)
    return {source.gateway: source for source in sources.order_by("pk")}


def _fresh(source: TelemetrySource, batch: Taken, now: datetime) -> list[Line] | None:
    """What of a batch was not taken yet, and the numbers moved on; None for numbers
    that the gateway cannot have come to."""
    lines = [line for line in batch.lines if line.number > source.last_outcome]
    if not lines:
        return []
    if lines[-1].number > source.last_outcome + GAP_MOST:
        return None
    if source.closed_at is not None:
        source_reopen(source)
    # A strange line in the middle has a number too: it came, so it is not lost.
    gap = max(batch.first - source.last_outcome - 1, 0)
    if gap:
        source.lost += gap
        source.lost_at = now
    source.last_outcome = lines[-1].number
    return lines


def keys_used(lines: Iterable[Line], *, now: datetime) -> None:
    """Move forward when and from where each key was used last, at most once in
    ``KEY_USE_EVERY``. A gateway's clock that is ahead counts as now."""
    newest: dict[str, Line] = {}
    for line in lines:
        if line.key and (line.key not in newest or line.at > newest[line.key].at):
            newest[line.key] = line
    known = ApiKey.objects.filter(pk__in=newest)
    for key, used_at in known.order_by("pk").values_list("pk", "last_used_at"):
        at = min(newest[key].at, now)
        if used_at is None or used_at <= at - KEY_USE_EVERY:
            before = Q(last_used_at__isnull=True) | Q(last_used_at__lt=at)
            client = newest[key].client[:45].replace("\0", "")
            ApiKey.objects.filter(before, pk=key).update(
                last_used_at=at, last_used_from=client
            )


def _acknowledge(sources: Iterable[TelemetrySource]) -> None:
    numbers: dict[Any, Any] = {s.gateway: s.last_outcome for s in sources}
    if numbers:
        redis_client().hset(names.OUTCOMES_ACKS, mapping=numbers)
