"""A replica hangs under traffic while its page is open: the page says what the
gateways do about it, and why. It takes its time: the times are those of the product."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.product import Product, eventually, running
from tests.fakes.engine import MockEngine
from tests.gateway.streams import Streams

pytestmark = [
    pytest.mark.browser,
    pytest.mark.processes,
    pytest.mark.timeout(300),
]

# The gateway looks for silence once a second, and a page follows within two.
SUSPECT_BY_S, EJECTED_BY_S = 45, 25


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Without the demo, and with one gateway process, which has all evidence."""
    folder = tmp_path_factory.mktemp("product")
    one = Product(folder, "--no-demo", SLUICE_GATEWAY_WORKERS="1")
    with running(one):
        yield one


@pytest.fixture
def engines() -> Iterator[list[MockEngine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(MockEngine(gap_ms=50)) for _ in range(2)]


def made(product: Product, path: str, body: dict[str, Any]) -> Any:
    with product.api() as api:
        answer = api.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def serve(product: Product, engines: list[MockEngine]) -> tuple[list[str], str]:
    """A model with these engines as its replicas, all healthy; their ids and a key."""
    made(product, "/models", {"name": "m"})
    version = {"name": "v1", "engine": "generic", "served_name": "mock"}
    made(product, "/models/m/versions", version)
    static = {"model": "m", "version": "v1", "driver": "static"}
    ids = [
        made(product, "/replicas", static | {"address": engine.address})["id"]
        for engine in engines
    ]
    made(product, "/teams", {"slug": "search"})
    key = made(product, "/teams/search/keys", {"name": "load"})
    product.wait_replicas_healthy(len(engines))
    return ids, str(key["secret"])


def opener(product: Product, key: str) -> Callable[[], socket.socket]:
    """Asks the gateway for one stream, on a connection of its own."""
    body = {"model": "m", "stream": True, "max_tokens": 20}
    body |= {"messages": [{"role": "user", "content": "hi"}]}
    sent = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
    head += f"authorization: Bearer {key}\r\ncontent-length: {len(sent)}\r\n\r\n"
    host, _colon, port = product.gateway.removeprefix("http://").partition(":")

    def opens() -> socket.socket:
        connection = socket.create_connection((host, int(port)), timeout=10)
        connection.sendall(head.encode() + sent)
        return connection

    return opens


@pytest.fixture
def page(browser: Browser, product: Product) -> Iterator[Page]:
    context = browser.new_context(locale="en-US")
    page = context.new_page()
    page.set_default_timeout(8000)
    page.goto(f"{product.console}/login")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(product.secret("admin-password"))
    page.get_by_role("button", name="Log in").click()
    yield page
    context.close()


def test_a_replica_that_hangs_under_traffic_is_suspect_then_ejected_and_comes_back(
    page: Page, product: Product, engines: list[MockEngine]
) -> None:
    ids, key = serve(product, engines)
    ill, engine = ids[1], engines[1]
    page.goto(f"{product.console}/replicas/{ill}")
    state, region = page.locator("#state"), page.locator("#replica-state")
    expect(state).to_have_text("Healthy")
    with Streams(opener(product, key), 10) as streams:
        eventually(lambda: len(streams.durations_s) >= 20, within_s=30)
        engine.set(stall_after=3)
        engine.counters_when(lambda now: now.running >= 2, within_s=20)
        whole = len(streams.durations_s)

        expect(state).to_have_text("Suspect", timeout=SUSPECT_BY_S * 1000)
        assert product.states()[ill] in ("suspect", "ejected")
        expect(region).to_contain_text("It holds requests and sends nothing.")
        expect(region).to_contain_text(re.compile(r"No content on \d+ open streams"))
        # What hangs is listed with its age, and nothing more was sent for it.
        rows = page.locator("[data-requests] tbody tr")
        assert rows.count() >= 2
        oldest = rows.first.locator("[data-cell=age_s]").inner_text()
        assert int(oldest) >= 25
        expect(rows.first.locator("[data-cell=tokens]")).to_have_text(
            re.compile("[34]")
        )

        expect(state).to_have_text("Ejected", timeout=EJECTED_BY_S * 1000)
        expect(region).to_contain_text("It holds requests and sends nothing.")
        expect(region).to_contain_text("Next try")
        # The others went on all the while.
        assert len(streams.durations_s) > whole
        assert product.states() == {ids[0]: "healthy", ill: "ejected"}
        # Whoever knows better may put it back at once.
        expect(page.get_by_role("button", name="Enable")).to_be_enabled()

        engine.set(stall_after=None)
        # After its time one request tries it, and then it is as it was.
        expect(state).to_have_text("Healthy", timeout=90_000)
        eventually(lambda: product.states()[ill] == "healthy", within_s=5)
    timeline = page.locator("#replica-timeline")
    for words in ("Ejected", "Suspect", "Decided by the gateway"):
        expect(timeline).to_contain_text(words)
