"""``python -m tests.bench.pages``: every page of the console on a cluster of size.

Fills a database of its own (SQLite, or PostgreSQL with ``--postgresql``) with 200
replicas, 50 models and 100,000 requests of seven days, and a real Valkey with their
live state. Then asks for every page that there is, and prints how long the server took,
with how many queries and bytes; what takes longer than it may is marked. Where there
is a Chromium, it also opens each page there, and prints when it showed first and how
much moved afterwards. Not part of the tests: filling takes minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import django
import httpx

from tests.services import free_port, postgresql, valkey

REPEATS = 5
LIMIT_MS = 150.0
LIMIT_FIRST_MS = 500.0
# Answers that are no page of their own.
PARTS = re.compile(r"-(data|csv|jsonl|timeline|engine|now|log)$")


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


@contextmanager
def console() -> Iterator[str]:
    """The web process as the product runs it, on the same data; its address."""
    port = free_port("127.0.0.1")
    process = subprocess.Popen(
        [sys.executable, "-m", "console.serve"],
        env=os.environ | {"SLUICE_CONSOLE_BIND": f"127.0.0.1:{port}"},
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        transport = httpx.HTTPTransport(retries=8)
        with httpx.Client(transport=transport, trust_env=False) as client:
            client.get(f"{url}/livez", timeout=20).raise_for_status()
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)


def paints(cast: Any, user: Any, only: str) -> int:
    """Open every page in a real browser, for the second time; how many came late."""
    from playwright.sync_api import sync_playwright

    from tests.e2e.browser import FLAGS, Visitor, chromium_path
    from tests.e2e.paints import painted, paints_watch
    from tests.looks import looks

    path = chromium_path()
    if path is None:
        print("No Chromium: when a page first shows was not measured.")
        return 0
    shown = [
        one
        for one in looks(cast)
        if one.route.startswith(only) and not one.poll and not PARTS.search(one.route)
    ]
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    late = 0
    with console() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        visit = Visitor(browser, url, user).visit()
        paints_watch(visit.page, slower=1)
        for one in shown:
            visit.go(one.address)
            found = painted(visit.go(one.address))
            late += found.first_ms > LIMIT_FIRST_MS
            print(
                f"{one!s:52} first paint {found.first_ms:6.0f} ms"
                f"  shift {found.shift:.4f}",
                flush=True,
            )
        browser.close()
    return late


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
    print(f"over {LIMIT_MS:.0f} ms, or shown after {LIMIT_FIRST_MS:.0f} ms: {too_slow}")
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
    too_slow += paints(cast, user, arguments.only)
    connection.close()
    return too_slow


if __name__ == "__main__":
    sys.exit(main())
