"""``python -m tests.bench.ingest``: how many rows a second reach the database.

For SQLite and for PostgreSQL: first as fast as the intake can, then at a steady rate
while pages read and small writers write beside it. Each part is a process of its own;
what PostgreSQL's server needs is counted too. Prints a table; see
``docs/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import psutil

from tests.services import postgresql, valkey

ROOT = Path(__file__).parent.parent.parent
_BATCH = 100
_BATCH_S = 0.05
_CELLS = 50
_PAGES_EVERY_S = 0.05
_ID_PLACE = b"0" * 32


class Burst(NamedTuple):
    """The intake alone; CPU without the database's server."""

    rows_per_s: float
    cpu_us: float


class Steady(NamedTuple):
    """CPU of the intake in shares of a core; times are ms."""

    rows_per_s: float
    cpu: float
    server_cpu: float
    lag_most_ms: float
    read_p50_ms: float
    read_p99_ms: float
    write_p99_ms: float


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ingest")
    parser.add_argument("--rate", type=int, default=2_000, help="rows/s")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--burst", type=int, default=20_000, help="rows")
    parser.add_argument("--part", choices=sorted(_PARTS), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.part:
        return _part(options)
    print(f"{options.rate} rows/s for {options.seconds} s; {os.cpu_count()} cores")
    print(
        "| database | burst rows/s | µs CPU a row | steady rows/s | intake CPU |",
        end="",
    )
    print(" server CPU | longest lag | read p50 / p99 | write p99 |")
    print(f"|{'---|' * 9}")
    with tempfile.TemporaryDirectory() as folder:
        _measure("SQLite", f"sqlite:///{folder}/bench.sqlite3", argv)
    with postgresql() as url:
        _measure("PostgreSQL", url, argv)
    return 0


def _measure(name: str, database_url: str, argv: Sequence[str]) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(valkey())
        data_dir = stack.enter_context(tempfile.TemporaryDirectory())
        environment = os.environ | {
            "DATABASE_URL": database_url,
            "REDIS_URL": server.url,
            "SLUICE_DATA_DIR": data_dir,
            "DJANGO_SETTINGS_MODULE": "console.settings",
        }

        def run(part: str) -> bytes:
            command = [sys.executable, "-m", "tests.bench.ingest", *argv]
            command += ["--part", part]
            found = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True
            )
            return found.stdout

        run("prepare")
        burst = msgspec.json.decode(run("burst"), type=Burst)
        steady = msgspec.json.decode(run("steady"), type=Steady)
    print(
        f"| {name} | {burst.rows_per_s:,.0f} | {burst.cpu_us:.0f} "
        f"| {steady.rows_per_s:,.0f} | {steady.cpu:.0%} | {steady.server_cpu:.0%} "
        f"| {steady.lag_most_ms:.0f} ms "
        f"| {steady.read_p50_ms:.1f} / {steady.read_p99_ms:.1f} ms "
        f"| {steady.write_p99_ms:.0f} ms |",
        flush=True,
    )


# The parts, each in a process that knows its database and its Redis -------------------


def _part(options: argparse.Namespace) -> int:
    import django

    django.setup()
    found = _PARTS[options.part](options)
    if found is not None:
        sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


def _prepare(options: argparse.Namespace) -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


class _Traffic:
    """A gateway's rows and counts, made before the clock starts where that is dear."""

    def __init__(self) -> None:
        from tests.routing.gateway_sender import Sender

        self.sender = Sender(f"gw-{uuid.uuid4().hex[:12]}")
        _, (line,) = self.sender.batch(1, request_id=_ID_PLACE.decode())
        self.sender.sent = 0
        self._line = line

    def send(self, rows: int) -> None:
        ms = int(time.time() * 1000)
        lines = [
            self._line.replace(_ID_PLACE, f"{ms:012x}{uuid.uuid4().hex[:20]}".encode())
            for _ in range(rows)
        ]
        first = self.sender.sent + 1
        self.sender.sent += rows
        self.sender.append(first, lines)

    def count(self) -> None:
        from tests.routing.gateway_sender import cell, figures

        minute = int(time.time() // 60)
        each = figures(self.sender.sent)
        self.sender.count(
            {cell(minute=minute, key=f"key{n:09d}"): each for n in range(_CELLS)}
        )


def _burst(options: argparse.Namespace) -> Burst:
    from routing.services import outcomes_ingest

    traffic = _Traffic()
    for _ in range(options.burst // _BATCH):
        traffic.send(_BATCH)
    began, cpu = time.perf_counter(), time.process_time()
    rows = outcomes_ingest(budget_s=600)
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - began
    assert rows == options.burst, rows
    return Burst(rows / wall_s, 1e6 * cpu_s / rows)


def _steady(options: argparse.Namespace) -> Steady:
    """Sends, and starts the intake and the readers beside."""
    command = [sys.executable, "-m", "tests.bench.ingest"]
    command += ["--rate", str(options.rate), "--seconds", str(options.seconds)]
    parts = [
        subprocess.Popen([*command, "--part", part], cwd=ROOT, stdout=subprocess.PIPE)
        for part in ("intake", "pages")
    ]
    for part in parts:
        assert part.stdout is not None and part.stdout.read(1) == b"\n"
    traffic = _Traffic()
    began = time.perf_counter()
    due = 0.0
    while (elapsed := time.perf_counter() - began) < options.seconds:
        due = elapsed * options.rate - traffic.sender.sent
        if due >= _BATCH:
            traffic.send(int(due))
            if int(elapsed) != int(elapsed - due / options.rate):
                traffic.count()
        time.sleep(_BATCH_S)
    traffic.sender.append(2**61, [b"the end"])
    intake, pages = (msgspec.json.decode(part.communicate()[0]) for part in parts)
    return Steady(**intake, **pages)


def _intake(options: argparse.Namespace) -> dict[str, float]:
    """As the worker does: a turn every second, which takes what is there."""
    from django.db import connection

    from routing.models import OutcomeRecord, TelemetryCursor
    from routing.selectors import telemetry_state
    from routing.services import counts_ingest, outcomes_ingest

    before = OutcomeRecord.objects.count()
    TelemetryCursor.objects.get_or_create(pk=1)
    foreign = TelemetryCursor.objects.get(pk=1).foreign
    server = _server_cpu_s(connection.settings_dict)
    print(flush=True)
    began, cpu = time.perf_counter(), time.process_time()
    lag_s = 0.0
    turn = 0
    while TelemetryCursor.objects.get(pk=1).foreign == foreign:
        lag_s = max(lag_s, telemetry_state().lag_s or 0.0)
        outcomes_ingest()
        counts_ingest(now=time.time())
        turn += 1
        time.sleep(max(0.0, began + turn - time.perf_counter()))
    wall_s = time.perf_counter() - began
    rows = OutcomeRecord.objects.count() - before
    return {
        "rows_per_s": rows / options.seconds,
        "cpu": (time.process_time() - cpu) / wall_s,
        "server_cpu": (_server_cpu_s(connection.settings_dict) - server) / wall_s,
        "lag_most_ms": 1000 * lag_s,
    }


def _server_cpu_s(database: dict[str, Any]) -> float:
    """What all processes of this PostgreSQL have used so far; 0 for SQLite."""
    if not database["HOST"]:
        return 0.0
    pid = Path(unquote(database["HOST"]), "data/postmaster.pid").read_text().split()[0]
    server = psutil.Process(int(pid))
    times = [p.cpu_times() for p in [server, *server.children(recursive=True)]]
    return sum(each.user + each.system for each in times)


def _pages(options: argparse.Namespace) -> dict[str, float]:
    """The newest requests and the usage of a team, and a small write, in turns."""
    from django.db import connection
    from django.db.models import Sum

    from cluster.models import AuditRecord
    from routing.models import OutcomeRecord, UsageHour

    def read() -> None:
        list(OutcomeRecord.objects.filter(team="red").order_by("-id")[:50])
        UsageHour.objects.filter(team="red").aggregate(n=Sum("requests"))

    def write() -> None:
        AuditRecord.objects.create(
            actor_kind="system", actor_name="bench", action="bench", target="bench"
        )

    connection.ensure_connection()
    read()
    print(flush=True)
    until = time.perf_counter() + options.seconds
    reads: list[float] = []
    writes: list[float] = []
    while time.perf_counter() < until:
        reads.append(_timed(read))
        writes.append(_timed(write))
        time.sleep(_PAGES_EVERY_S)
    return {
        "read_p50_ms": statistics.median(reads),
        "read_p99_ms": statistics.quantiles(reads, n=100)[98],
        "write_p99_ms": statistics.quantiles(writes, n=100)[98],
    }


def _timed(work: Callable[[], None]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


_PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "prepare": _prepare,
    "burst": _burst,
    "steady": _steady,
    "intake": _intake,
    "pages": _pages,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
