"""The product without its demo, one model on two mock engines, and its books."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg

from tests.e2e.product import Product, eventually, running
from tests.fakes.engine import MockEngine

MODEL = "m"
_BOOKS = """
SELECT (SELECT COUNT(*) FROM routing_outcomerecord),
       (SELECT COALESCE(SUM(requests), 0) FROM routing_trafficminute),
       (SELECT COALESCE(SUM(requests), 0) FROM routing_usagehour),
       (SELECT COALESCE(SUM(lost), 0) FROM routing_telemetrysource),
       (SELECT COALESCE(SUM(unfinished), 0) FROM routing_telemetrysource)
"""


class Books(NamedTuple):
    """What the database holds: rows, the requests of minutes and of hours, and what it
    says is missing."""

    rows: int
    minutes: int
    hours: int
    lost: int
    unfinished: int


class House:
    """Two gateway workers, a version on each of two engines, and a key."""

    def __init__(self, product: Product, engines: list[MockEngine]) -> None:
        self.product = product
        self.engines = engines
        with product.api() as api:
            self.key = _furnish(api, engines)
        product.wait_replicas_healthy(len(engines))
        eventually(lambda: self.chat().status_code == 200, within_s=10)

    @property
    def database(self) -> str:
        return self.product.environment["DATABASE_URL"]

    def client(self, key: str = "") -> httpx.Client:
        return httpx.Client(
            base_url=self.product.gateway,
            headers={"Authorization": f"Bearer {key or self.key}"},
            timeout=20,
            trust_env=False,
        )

    def chat(self, key: str = "", **fields: Any) -> httpx.Response:
        with self.client(key) as client:
            return client.post("/v1/chat/completions", json=_body(**fields))

    def books(self) -> Books:
        if self.database:
            with psycopg.connect(self.database) as connection:
                row: Any = connection.execute(_BOOKS).fetchone()
        else:
            path = self.product.data_dir / "sluice.sqlite3"
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as found:
                row = found.execute(_BOOKS).fetchone()
        return Books(*map(int, row))

    def logged(self) -> int:
        """Requests in the access logs of the gateways: their outcomes, as lines."""
        logs = (self.product.data_dir / "log").glob("gateway-*.log*")
        return sum(
            '"request_id"' in line and '"ending"' in line
            for log in logs
            for line in log.read_text().splitlines()
        )

    def books_close(self, *, within_s: float = 40) -> Books:
        """The books once they hold, or name as missing, every logged request."""

        def closed() -> Books | None:
            books = self.books()
            whole = books.rows + books.lost == self.logged() == books.minutes
            return books if whole and books.hours == books.minutes else None

        try:
            found = eventually(closed, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{self.books()} {self.logged()} logged") from error
        assert isinstance(found, Books)
        return found

    def console(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.product.console}{path}", timeout=5, trust_env=False)

    def kill_and_wait(self, name: str) -> None:
        """SIGKILL; returns when the supervisor has started it again."""
        pid = self.product.pid(name)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.product.pid(name) != pid, within_s=30)


class Traffic:
    """Clients that send one request after another; a new connection each, for a
    worker that is gone takes its connections along."""

    def __init__(self, house: House, clients: int = 3, **fields: Any) -> None:
        self.statuses: Counter[int | str] = Counter()
        self._house = house
        self._fields = fields
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, daemon=True) for _ in range(clients)
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.statuses[self._house.chat(**self._fields).status_code] += 1
            except httpx.HTTPError as error:
                self.statuses[type(error).__name__] += 1
            # Enough to notice, and no load for the machine.
            time.sleep(0.02)

    def goes_on(self, requests: int = 20, *, within_s: float = 20) -> None:
        """So many more requests go well from now on."""
        goal = self.statuses[200] + requests
        eventually(lambda: self.statuses[200] >= goal, within_s=within_s)


class Streams:
    """Long streams, opened together; ``ended_well`` counts those that came whole."""

    def __init__(self, house: House, count: int, **mock: Any) -> None:
        self._house = house
        self._mock = mock
        self.begun = threading.Semaphore(0)
        self.count = count
        self.ended_well = 0
        self._threads = [
            threading.Thread(target=self._run, daemon=True) for _ in range(count)
        ]

    def open(self) -> None:
        """Returns when each has had its first content."""
        for thread in self._threads:
            thread.start()
        for _ in range(self.count):
            assert self.begun.acquire(timeout=20)

    def join(self, within_s: float = 60) -> None:
        for thread in self._threads:
            thread.join(timeout=within_s)

    def _run(self) -> None:
        body = _body(stream=True, x_mock=self._mock)
        seen = ""
        # One that is cut off lacks its end, and that says enough.
        with (
            suppress(httpx.HTTPError),
            self._house.client() as client,
            client.stream("POST", "/v1/chat/completions", json=body) as answer,
        ):
            for text in answer.iter_text():
                if not seen:
                    self.begun.release()
                seen += text
        self.ended_well += "[DONE]" in seen and '"error"' not in seen


def _body(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    return {"model": MODEL, "messages": messages, "max_tokens": 3} | fields


def _furnish(api: httpx.Client, engines: list[MockEngine]) -> str:
    def post(path: str, **body: Any) -> Any:
        answer = api.post(path, json=body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    post("/models", name=MODEL)
    for number, engine in enumerate(engines, 1):
        version = f"v{number}"
        post(
            f"/models/{MODEL}/versions",
            **{"name": version, "engine": "generic", "served_name": "mock"},
        )
        post(
            "/replicas",
            **{"model": MODEL, "version": version, "driver": "static"},
            address=engine.address,
        )
    generation = api.get(f"/models/{MODEL}/weights").json()["generation"]
    share = 10_000 // len(engines)
    weights = {f"v{number}": share for number in range(1, len(engines) + 1)}
    body = {"weights": weights, "generation": generation}
    answer = api.put(f"/models/{MODEL}/weights", json=body)
    assert answer.status_code == 200, answer.text
    post("/teams", slug="t")
    return str(post("/teams/t/keys", name="k")["secret"])


@contextmanager
def house(folder: Path, **environment: str) -> Iterator[House]:
    with ExitStack() as stack:
        engines = [stack.enter_context(MockEngine()) for _ in range(2)]
        product = Product(folder, "--no-demo", **environment)
        yield House(stack.enter_context(running(product)), engines)
