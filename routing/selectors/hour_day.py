"""The day of an hour in a zone, also where the database is SQLite.

SQLite knows no zones, so Python tells it the day: for every row. Django's own function
works it out anew each time, which takes most of a second for 100 000 rows; this one
remembers what it said, for there are few hours and many rows of each.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import TruncDate

_FUNCTION = "sluice_hour_day"


class HourDay(TruncDate):
    """``TruncDate`` for a column of whole hours."""

    def as_sqlite(self, compiler: Any, connection: Any, **_context: Any) -> Any:
        hour, values = compiler.compile(self.lhs)
        return f"{_FUNCTION}({hour}, %s)", (*values, self.get_tzname())


@lru_cache(maxsize=20_000)
def _hour_day(hour: str, zone: str) -> str:
    moment = datetime.fromisoformat(hour).replace(tzinfo=UTC)
    return moment.astimezone(ZoneInfo(zone)).date().isoformat()


def hour_day_install(*, connection: BaseDatabaseWrapper, **_signal: Any) -> None:
    """Receives ``connection_created``."""
    if connection.vendor == "sqlite":
        made = connection.connection
        made.create_function(_FUNCTION, 2, _hour_day, deterministic=True)
