"""One publisher at a time, over every process that shares the database."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connection

# Any number that nothing else in the database uses.
_ADVISORY_LOCK = 7_117_423


@contextmanager
def publish_lock() -> Iterator[None]:
    """Held around reading, numbering and storing.

    On PostgreSQL a session lock on the connection, elsewhere (SQLite: one
    machine) a lock on a file in the data directory. Both go with their process.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [_ADVISORY_LOCK])
            try:
                yield
            finally:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_ADVISORY_LOCK])
        return
    settings.DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (settings.DATA_DIR / "publish.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
