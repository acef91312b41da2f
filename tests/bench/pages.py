"""``python -m tests.bench.pages``: every page of the console on a cluster of size.

Fills a database of its own (SQLite, or PostgreSQL with ``--postgresql``) with 200
replicas, 50 models and 100,000 requests of seven days, and a real Valkey with their
live state. Then asks for every page that there is, and prints how long the server took,
with how many queries and bytes; what takes longer than it may is marked. Where there
is a Chromium, it also opens the main pages and prints when they showed first. Not part
of the tests: filling takes a minute.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import django

from tests.services import postgresql, valkey

REPEATS = 5
LIMIT_MS = 150.0


class Measured(NamedTuple):
    """Of one page, asked for again and again."""

    title: str
    status: int
    times_ms: list[float]
    queries: int
    size: int

    @property
    def median_ms(self) -> float:
        return statistics.median(self.times_ms)

    @property
    def is_slow(self) -> bool:
        return self.median_ms > LIMIT_MS

    @property
    def line(self) -> str:
        over = "  over" if self.is_slow else ""
        return (
            f"{self.title:52} {self.status}  median {self.median_ms:6.1f} ms"
            f"  worst {max(self.times_ms):6.1f} ms  {self.queries:3} queries"
            f"  {self.size:9,} bytes{over}"
        )


def measure(look: Any, client: Any) -> Measured:
    """The first answer pays for what is loaded late, and tells the queries."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    look.ask(client)
    with CaptureQueriesContext(connection) as queries:
        response = look.ask(client)
    asked = len(queries)
    times: list[float] = []
    for _repeat in range(REPEATS):
        began = time.perf_counter()
        look.ask(client)
        times.append((time.perf_counter() - began) * 1000)
    size = len(response.content)
    return Measured(str(look), response.status_code, times, asked, size)


def plans(look: Any, client: Any) -> None:
    """The slowest queries of a page and how the database goes about them."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as queries:
        look.ask(client)
    explain = "EXPLAIN" if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN"
    slowest = sorted(queries, key=lambda one: -float(one["time"]))[:3]
    for one in slowest:
        print(f"    {one['time']} s  {one['sql'][:1000]}")
        if one["sql"].startswith("SELECT"):
            with connection.cursor() as cursor:
                cursor.execute(f"{explain} {one['sql']}".replace("%", "%%"))
                for row in cursor.fetchall():
                    print("       ", row[-1])


def arguments_read() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pages")
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--outcomes", type=int, default=100_000)
    parser.add_argument("--audits", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=2_000)
    parser.add_argument("--only", default="", help="routes that begin so")
    parser.add_argument(
        "--plans", action="store_true", help="also the plans of what is too slow"
    )
    return parser.parse_args()


def main() -> int:
    arguments = arguments_read()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        database = f"sqlite:///{folder}/bench.sqlite3"
        if arguments.postgresql:
            database = stack.enter_context(postgresql())
        os.environ |= {
            "DATABASE_URL": database,
            "REDIS_URL": stack.enter_context(valkey()).url,
            "SLUICE_DATA_DIR": folder,
            "DJANGO_SETTINGS_MODULE": "console.settings",
        }
        django.setup()
        too_slow = _run(arguments, Path(folder))
    print(f"over {LIMIT_MS:.0f} ms: {too_slow}")
    return int(bool(too_slow))


def _run(arguments: argparse.Namespace, folder: Path) -> int:
    from django.core.management import call_command
    from django.db import connection
    from django.test import Client

    from console.accounts.models import User
    from tests.bench import filling
    from tests.looks import looks

    call_command("migrate", verbosity=0)
    call_command("collectstatic", verbosity=0, interactive=False)
    began = time.monotonic()
    cast = filling.fill(
        filling.Amounts(arguments.outcomes, arguments.audits, arguments.keys)
    )
    with connection.cursor() as cursor:
        # As PostgreSQL does by itself after a while, and SQLite on ``optimize``.
        cursor.execute("ANALYZE")
    print(f"filled in {time.monotonic() - began:.0f} s", file=sys.stderr)
    user = User.objects.create_user("bench", role="admin")
    client = Client(HTTP_HOST="localhost")
    client.force_login(user)
    too_slow = 0
    print(f"{connection.vendor}, load average {os.getloadavg()[0]:.1f}")
    for look in looks(cast):
        if not look.route.startswith(arguments.only):
            continue
        found = measure(look, client)
        print(found.line, flush=True)
        too_slow += found.is_slow
        if found.is_slow and arguments.plans:
            plans(look, client)
    connection.close()
    return too_slow


if __name__ == "__main__":
    sys.exit(main())
