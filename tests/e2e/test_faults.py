"""What breaks beside the gateways stops no traffic, and the books come out right."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from console.children import valkey_socket
from tests import services
from tests.e2e.house import House, Streams, Traffic, house
from tests.e2e.product import eventually

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

# Longer than what breaks for a moment stays broken.
LONG = {"tokens": 80, "gap_ms": 100}


def readyz(house: House) -> dict[str, Any]:
    body: dict[str, Any] = house.console("/readyz").json()
    return body


def codes(house: House) -> set[str]:
    """What the console says is wrong: reasons and warnings."""
    body = readyz(house)
    return {item["code"] for item in (*body["reasons"], *body["warnings"])}


def test_a_killed_valkey_costs_no_request_and_no_record(tmp_path: Path) -> None:
    with house(tmp_path) as home, Traffic(home) as traffic:
        streams = Streams(home, 10, **LONG)
        streams.open()
        for _ in range(2):
            traffic.goes_on()
            home.kill_and_wait("valkey")
        traffic.goes_on()
        streams.join()
        traffic.__exit__()
        assert streams.ended_well == streams.count
        assert set(traffic.statuses) == {200}
        books = home.books_close()
        assert (books.lost, books.unfinished) == (0, 0)
        eventually(lambda: codes(home) == set(), within_s=20)


def test_an_emptied_redis_heals_by_itself_and_refuses_no_good_key(
    tmp_path: Path,
) -> None:
    with house(tmp_path) as home, closing(valkey_of(tmp_path)) as client:
        with home.product.api() as api:
            unseen = [
                api.post("/teams/t/keys", json={"name": f"n{n}"}).json()["secret"]
                for n in range(2)
            ]
        with Traffic(home) as traffic:
            traffic.goes_on()
            client.flushall()
            answers: list[int] = []

            def good() -> bool:
                """Keys that no gateway has seen; each request may meet another one."""
                answers.extend(home.chat(key).status_code for key in unseen)
                return answers[-8:] == [200] * 8

            eventually(good, within_s=60)
            traffic.goes_on()
        assert set(traffic.statuses) == {200}
        assert set(answers) <= {200, 503}
        eventually(
            lambda: list(home.product.states().values()) == ["healthy"] * 2, within_s=40
        )
        books = home.books_close(within_s=60)
        assert (books.lost, books.unfinished) == (0, 0)
        eventually(lambda: codes(home) == set(), within_s=60)


def valkey_of(folder: Path) -> redis.Redis:
    return redis.Redis.from_url(f"unix://{valkey_socket(folder)}")


def test_a_killed_console_costs_no_request(tmp_path: Path) -> None:
    with house(tmp_path) as home, Traffic(home) as traffic:
        home.kill_and_wait("console")
        traffic.goes_on()
        eventually(lambda: readable(home), within_s=30)
        traffic.__exit__()
        assert set(traffic.statuses) == {200}
        assert home.books_close().lost == 0


def readable(home: House) -> bool:
    try:
        return home.console("/readyz").status_code == 200
    except httpx.HTTPError:
        return False


def test_a_stopped_postgresql_costs_no_request_and_is_told(tmp_path: Path) -> None:
    with (
        services.postgresql_server() as server,
        house(tmp_path, DATABASE_URL=server.url) as home,
        Traffic(home) as traffic,
    ):
        home.books_close()
        server.stop()
        traffic.goes_on(100)
        assert home.console("/readyz").status_code == 503
        assert "database" in codes(home)
        server.start()
        eventually(lambda: home.console("/readyz").status_code == 200, within_s=30)
        traffic.goes_on()
        traffic.__exit__()
        assert set(traffic.statuses) == {200}
        books = home.books_close(within_s=90)
        assert (books.lost, books.unfinished) == (0, 0)


def test_a_foreign_write_lock_on_sqlite_only_delays_the_books(tmp_path: Path) -> None:
    with house(tmp_path) as home, Traffic(home) as traffic:
        home.books_close()
        path = tmp_path / "sluice.sqlite3"
        with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            held = home.books()
            until = time.monotonic() + 8
            while time.monotonic() < until:
                traffic.goes_on(10)
                # Pages that only read are not held up.
                assert home.console("/livez").status_code == 200
            assert home.books() == held
            foreign.execute("ROLLBACK")
        traffic.__exit__()
        assert set(traffic.statuses) == {200}
        books = home.books_close(within_s=60)
        assert (books.lost, books.unfinished) == (0, 0)


def test_a_killed_worker_of_the_gateway_is_named_in_the_books(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        streams = Streams(home, 8, **LONG)
        streams.open()
        # What each worker says of itself every second.
        with home.product.api() as api:
            eventually(
                lambda: (
                    sum(
                        item["in_flight"]
                        for item in api.get("/gateways").json()["items"]
                    )
                    == streams.count
                ),
                within_s=10,
            )
        home.kill_and_wait("gateway-1")
        streams.join()
        cut = streams.count - streams.ended_well
        with Traffic(home) as traffic:
            traffic.goes_on()
        assert set(traffic.statuses) == {200}
        books = eventually(
            lambda: found if (found := home.books()).unfinished == cut else None,
            within_s=60,
        )
        assert books.unfinished == cut
        eventually(
            lambda: cut == 0 or "requests_unfinished" in codes(home), within_s=20
        )
        home.books_close()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    size = f"size={megabytes}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_stops_no_traffic_and_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, 200), house(folder) as home:
        home.books_close()
        filler = folder / "filler"
        with filler.open("wb", buffering=0) as file:
            fill(file)
        with Traffic(home) as traffic:
            traffic.goes_on(50)
            eventually(lambda: codes(home), within_s=60)
            fill_again(filler)
            traffic.goes_on(50)
        assert set(traffic.statuses) == {200}
        filler.unlink()
        eventually(lambda: codes(home) == set(), within_s=60)
        with Traffic(home) as after:
            after.goes_on()
        assert set(after.statuses) == {200}
        books = home.books()
        eventually(lambda: home.books().rows > books.rows, within_s=30)


def fill(file: Any) -> None:
    block = b"\0" * 65536
    while block:
        try:
            file.write(block)
        except OSError:
            block = block[: len(block) // 2]


def fill_again(filler: Path) -> None:
    """What was freed meanwhile, by rotated logs for instance."""
    with filler.open("ab", buffering=0) as file:
        fill(file)
