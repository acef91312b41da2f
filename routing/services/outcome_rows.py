"""Lines of outcomes as rows of the database, checked and written in bulk.

Model instances cost more than everything else together, so rows are plain tuples:
2 000 a second leave most of a core to the pages (``tests/bench/ingest.py``).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from django.db import IntegrityError, connection, transaction

from routing.contracts.outcome import Outcome, outcome_decode
from routing.models import OutcomeRecord

# A request is slow when its stream had no content for so long, or when it took so
# long in all.
SLOW_FIRST_CONTENT_MS = 5_000.0
SLOW_TOTAL_MS = 30_000.0

_LINE_BYTES_MOST = 64 * 1024
_ID = re.compile(r"[0-9a-f]{32}\Z")

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Ms = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class _Columns(msgspec.Struct, frozen=True):
    """The columns that an outcome has by the same name, within what they hold."""

    gateway: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    team: Annotated[str, msgspec.Meta(max_length=63)]
    key: Annotated[str, msgspec.Meta(max_length=12)]
    model: Annotated[str, msgspec.Meta(max_length=100)]
    generation: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    first_version: Annotated[str, msgspec.Meta(max_length=100)]
    version: Annotated[str, msgspec.Meta(max_length=100)]
    replica: Annotated[str, msgspec.Meta(max_length=220)]
    status: Annotated[int, msgspec.Meta(ge=100, le=999)]
    code: Annotated[str, msgspec.Meta(max_length=40)]
    duration_ms: _Ms
    first_content_ms: _Ms | None
    prompt_tokens: _Number | None
    completion_tokens: _Number | None


COLUMNS = (*_Columns.__struct_fields__, "id", "at", "ending", "slow", "attempts")
COLUMNS += ("body",)


class Line(NamedTuple):
    """One good line: the number of its outcome, its row in the order of ``COLUMNS``,
    and who used which key when."""

    number: int
    row: tuple[Any, ...]
    key: str
    at: datetime
    client: str


def line_read(number: int, line: bytes, *, gateway: str) -> Line:
    """Raises ``ValueError`` for a line that the gateway cannot have written."""
    if len(line) > _LINE_BYTES_MOST:
        raise ValueError("longer than any outcome")
    try:
        outcome = outcome_decode(line)
    except RecursionError as error:
        raise ValueError("nested without end") from error
    columns = msgspec.convert(outcome, _Columns, from_attributes=True)
    if columns.gateway != gateway or not _ID.match(outcome.request_id):
        raise ValueError("not of this gateway, or without an id")
    values = msgspec.structs.astuple(columns)
    # PostgreSQL holds no NUL in texts; the body, which is bytes, may have any.
    if b"\\u0000" in line and any(isinstance(v, str) and "\0" in v for v in values):
        raise ValueError("a NUL in a name")
    try:
        at = datetime.fromtimestamp(outcome.at, UTC)
    except (OverflowError, OSError) as error:
        raise ValueError("at an impossible time") from error
    rest = (
        uuid.UUID(hex=outcome.request_id),
        at,
        outcome.ending.value,
        is_slow(outcome),
        len(outcome.attempts),
        line,
    )
    return Line(number, (*values, *rest), outcome.key, at, outcome.client)


def is_slow(outcome: Outcome) -> bool:
    """First content later than 5 s for a stream, or an end later than 30 s."""
    if outcome.duration_ms > SLOW_TOTAL_MS:
        return True
    first_ms = outcome.first_content_ms
    if first_ms is None:
        first_ms = outcome.duration_ms
    return outcome.streamed and first_ms > SLOW_FIRST_CONTENT_MS


def rows_insert(rows: Sequence[tuple[Any, ...]]) -> None:
    """Write the rows; one whose request id is known already is left out. Within a
    transaction of the caller's."""
    if not rows:
        return
    if connection.vendor == "postgresql":
        try:
            with transaction.atomic():
                _copy(rows)
            return
        except IntegrityError:
            # An id twice, which no gateway makes: the slower way skips it.
            pass
    _insert(rows)


def _copy(rows: Sequence[tuple[Any, ...]]) -> None:
    """A fifth of the cost of INSERT, but it cannot skip what is there already."""
    statement = f"COPY {_TABLE} ({', '.join(COLUMNS)}) FROM STDIN"
    with (
        connection.cursor() as cursor,
        # Django translates the driver's errors in its own methods only.
        connection.wrap_database_errors,
        cursor.copy(statement) as copy,
    ):
        for row in rows:
            copy.write_row(row)


def _insert(rows: Sequence[tuple[Any, ...]]) -> None:
    places = ", ".join(["%s"] * len(COLUMNS))
    statement = (
        f"INSERT INTO {_TABLE} ({', '.join(COLUMNS)}) VALUES ({places}) "
        "ON CONFLICT (id) DO NOTHING"
    )
    native_uuid = connection.features.has_native_uuid_field
    adapt_time = connection.ops.adapt_datetimefield_value
    id_at, time_at = COLUMNS.index("id"), COLUMNS.index("at")

    def adapted(row: tuple[Any, ...]) -> list[Any]:
        values = list(row)
        id_ = row[id_at]
        values[id_at] = id_ if native_uuid else getattr(id_, "hex", id_)
        values[time_at] = adapt_time(row[time_at])
        return values

    with connection.cursor() as cursor:
        cursor.executemany(statement, [adapted(row) for row in rows])


_TABLE = OutcomeRecord._meta.db_table
