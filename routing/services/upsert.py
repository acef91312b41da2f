"""Many rows at once that are there afterwards, whether they were before or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any

from django.db import connection, models


def rows_upsert(
    model: type[models.Model],
    *,
    keys: Sequence[str],
    figures: Sequence[str],
    rows: Iterable[Sequence[Any]],
    add: bool,
) -> None:
    """Insert rows of ``keys`` then ``figures``; where one with these keys is there,
    replace its figures, or add to them.

    ``keys`` are the columns of a unique constraint. Rows go in their own order, so
    that sorted ones lock in the same order whoever writes.
    """
    table = model._meta.db_table
    columns = (*keys, *figures)
    places = ", ".join(["%s"] * len(columns))
    changes = ", ".join(
        f"{name} = {table}.{name} + EXCLUDED.{name}"
        if add
        else f"{name} = EXCLUDED.{name}"
        for name in figures
    )
    statement = (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"
    )
    adapt_time = connection.ops.adapt_datetimefield_value
    adapt_day = connection.ops.adapt_datefield_value

    def adapted(value: Any) -> Any:
        if isinstance(value, datetime):
            return adapt_time(value)
        return adapt_day(value) if isinstance(value, date) else value

    values = [[adapted(value) for value in row] for row in rows]
    if values:
        with connection.cursor() as cursor:
            cursor.executemany(statement, values)
