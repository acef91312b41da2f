"""Live pages in a real Chromium against one console: numbers, charts, memory, login."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from django.contrib.sessions.models import Session
from django.db import connections
from django.test import Client
from playwright.sync_api import APIResponse, Page, Route, expect

from cluster import live
from cluster.health import Probe, Process, ProcessAxis
from cluster.health.load import Load
from cluster.models import Replica
from cluster.services import engines_ask
from console.accounts.models import User
from tests import fleet
from tests.e2e.asgi_server import ConsoleServer
from tests.e2e.browser import Visit, Visitor
from tests.fakes.engine import MockEngine

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
    pytest.mark.timeout(180),
]

MIB = 1024 * 1024
COUNT_NODES = "document.evaluate('count(//node())', document, null, 1).numberValue"
WATCH_SHIFTS = """() => {
  window.shift = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.shift += entry.value;
  }).observe({ type: "layout-shift", buffered: false });
}"""
UPDATES_PER_S = 5
UPDATES_FOR_S = 45.0


@pytest.fixture
def replica() -> Replica:
    axis = ProcessAxis(Process.RUNNING, time.time() - 60)
    return fleet.process_add(fleet.model_add("qwen", "v1"), "v1", axis)


def load_set(replica: Replica, **figures: Any) -> None:
    live.load_write(replica.id, Load(time.time(), **figures), unlock="x")


def done_elsewhere(path: str) -> None:
    """The same person does it in another window; in a thread without a loop, as the
    console's own are."""

    def post() -> None:
        client = Client()
        client.force_login(User.objects.get(username="ada"))
        client.post(path)
        connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(post).result(timeout=10)


def opened(visitor: Visitor, path: str, **habits: Any) -> tuple[Visit, Page]:
    visit = visitor.visit(**habits)
    page = visit.go(path)
    expect(page.locator("[data-freshness]").first).to_have_text("Live")
    return visit, page


def test_numbers_and_open_requests_follow_without_a_new_page(
    visitor: Visitor, replica: Replica, valkey: redis.Redis
) -> None:
    load_set(replica, running=1, kv_cache=0.25)
    fleet.open_set(valkey, replica.id, 0)
    visit, page = opened(visitor, f"/replicas/{replica.id}")
    figure = page.locator('[data-figure="in_flight"]')
    expect(figure).to_have_text("0")
    expect(page.locator("[data-requests-none]")).to_be_visible()
    fleet.open_set(valkey, replica.id, 3)
    load_set(replica, running=3, kv_cache=0.5)
    expect(figure).to_have_text("3", timeout=15_000)
    expect(page.locator('[data-figure="kv"]')).to_have_text("50")
    expect(page.locator("[data-requests] tbody tr")).to_have_count(3)
    expect(page.locator("[data-requests] tbody tr").first).to_contain_text("r2")
    assert visit.complaints == []


def test_the_list_patches_its_numbers_and_moves_nothing(
    visitor: Visitor, replica: Replica, valkey: redis.Redis
) -> None:
    load_set(replica, running=1, tokens_per_s=10.0)
    fleet.open_set(valkey, replica.id, 0)
    _visit, page = opened(visitor, "/replicas")
    page.evaluate(WATCH_SHIFTS)
    cell = page.locator('tbody [data-figure="in_flight"]')
    took_s = []
    for count in (3, 120, 7):
        fleet.open_set(valkey, replica.id, count)
        load_set(replica, running=count, tokens_per_s=12_345.6 * count)
        began = time.monotonic()
        expect(cell).to_have_text(str(count), timeout=15_000)
        took_s.append(time.monotonic() - began)
    # A busy machine may hold one of them up.
    assert min(took_s) < 2
    assert page.evaluate("window.shift") < 0.01


def test_requests_that_come_and_go_move_nothing_else_on_the_page(
    visitor: Visitor, replica: Replica, valkey: redis.Redis
) -> None:
    load_set(replica, running=1)
    fleet.open_set(valkey, replica.id, 0)
    _visit, page = opened(visitor, f"/replicas/{replica.id}")
    log = page.locator("[data-log]")
    page.locator("[data-requests-none]").scroll_into_view_if_needed()
    place = log.bounding_box()
    page.evaluate(WATCH_SHIFTS)
    for count in (30, 1, 0):
        fleet.open_set(valkey, replica.id, count)
        expect(page.locator("[data-requests] tbody tr")).to_have_count(count)
    assert log.bounding_box() == place
    assert page.evaluate("window.shift") < 0.01


def test_buttons_and_their_numbers_follow_what_others_do(
    visitor: Visitor, replica: Replica, valkey: redis.Redis
) -> None:
    fleet.open_set(valkey, replica.id, 2)
    visit, page = opened(visitor, f"/replicas/{replica.id}")
    actions = page.locator("[data-actions]")
    page.get_by_role("button", name="Drain…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 requests run on it")
    fleet.open_set(valkey, replica.id, 5)
    expect(dialog).to_contain_text("5 requests run on it")
    page.keyboard.press("Escape")
    drain = page.get_by_role("button", name="Drain…")
    expect(drain).to_be_focused()
    done_elsewhere(f"/replicas/{replica.id}/drain")
    expect(actions).to_contain_text("It is draining already.")
    expect(page.get_by_role("button", name="Enable")).to_be_enabled()
    # Whoever stood on the button is not thrown back to the top of the page.
    blocked = actions.locator("[data-verb=drain] [data-cannot] button")
    expect(blocked).to_be_focused()
    assert visit.complaints == []


def test_a_replica_that_is_removed_leaves_a_tombstone_on_the_open_page(
    visitor: Visitor, replica: Replica, valkey: redis.Redis
) -> None:
    fleet.open_set(valkey, replica.id, 1)
    visit, page = opened(visitor, f"/replicas/{replica.id}")
    expect(page.locator("[data-actions]")).to_be_visible()
    done_elsewhere(f"/replicas/{replica.id}/remove")
    expect(page.locator("#state")).to_have_text("Removed", timeout=4000)
    expect(page.locator("#replica-state")).to_contain_text("Removed by")
    for gone in ("[data-actions]", "[data-requests]", ".now", "[data-chart]"):
        expect(page.locator(gone).first).to_be_hidden()
    expect(page.locator("#replica-timeline")).to_be_visible()
    expect(page.locator("[data-log]")).to_be_visible()
    assert visit.complaints == []


def test_a_change_during_a_fetch_is_fetched_again(
    visitor: Visitor, replica: Replica
) -> None:
    address = f"/replicas/{replica.id}"
    visit, page = opened(visitor, address)
    with page.expect_websocket() as opening:
        page.reload()
    expect(page.locator("[data-freshness]").first).to_have_text("Live")
    held: list[tuple[Route, APIResponse]] = []

    def hold(route: Route) -> None:
        held.append((route, route.fetch()))
        # The answer that is under way knows nothing of this.
        done_elsewhere(f"{address}/remove")

    page.wait_for_load_state("networkidle")
    page.route(re.compile(f"{address}$"), hold, times=1)
    with opening.value.expect_event(
        "framereceived", lambda frame: bool(held) and "changed" in str(frame)
    ):
        done_elsewhere(f"{address}/disable")
    route, answer = held[0]
    assert "Removed" not in answer.text()
    route.fulfill(response=answer)
    expect(page.locator("#state")).to_have_text("Removed", timeout=4000)
    assert visit.complaints == []


def test_a_chart_tells_its_numbers_and_obeys_the_arrow_keys(
    visitor: Visitor, replica: Replica
) -> None:
    load_set(replica, kv_cache=0.25)
    visit, page = opened(visitor, f"/replicas/{replica.id}")
    chart = page.locator('[data-chart="kv"]')
    chart.scroll_into_view_if_needed()
    text = chart.locator(".chart-text")
    expect(text).to_contain_text("now 25 %, lowest 25, highest 25")
    load_set(replica, kv_cache=0.75)
    expect(text).to_contain_text("now 75 %, lowest 25, highest 75")
    chart.locator("svg").focus()
    page.keyboard.press("Home")
    expect(text).to_contain_text("UTC: 25 %")
    expect(page.locator(".chart-cursor:not(.is-off)")).not_to_have_count(0)
    page.keyboard.press("Escape")
    expect(text).to_contain_text("now 75 %")
    page.get_by_role("button", name="As table").click()
    expect(chart.get_by_role("table", name="KV cache")).to_contain_text("UTC")
    expect(chart.locator("svg")).to_have_attribute("aria-label", re.compile("KV cache"))
    assert visit.complaints == []


def test_a_wrong_name_is_told_on_the_open_page_as_soon_as_the_engine_was_asked(
    visitor: Visitor, replica: Replica
) -> None:
    with MockEngine(model="llama-70b") as engine:
        other = fleet.replica_add(replica.version.model, "v1", 9000)
        Replica.objects.filter(pk=other.pk).update(address=engine.address)
        visit, page = opened(visitor, f"/replicas/{other.id}")
        card = page.locator("#replica-engine")
        expect(card).to_contain_text("Nothing is known of it")
        elsewhere(engines_ask)
        warning = page.locator("#replica-state .banner-warn")
        words = "does not list the served name qwen"
        expect(warning).to_contain_text(words, timeout=20_000)
        expect(warning).to_contain_text("It lists: llama-70b.")
        expect(card).to_contain_text("mock", timeout=20_000)
    assert visit.complaints == []


def elsewhere(service: Callable[[], object]) -> None:
    """Call a service as a worker does, in a thread without a browser's event loop."""

    def call() -> None:
        try:
            service()
        finally:
            connections.close_all()

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_whoever_is_logged_out_elsewhere_is_sent_to_the_login(
    visitor: Visitor, replica: Replica
) -> None:
    _visit, page = opened(visitor, f"/replicas/{replica.id}")
    Session.objects.all().delete()
    # A session is looked at every 5 s.
    page.wait_for_url("**/login?next=**", timeout=30_000)


def test_without_the_socket_the_page_asks_and_says_that_it_reconnects(
    visitor: Visitor, server: ConsoleServer, replica: Replica, valkey: redis.Redis
) -> None:
    fleet.open_set(valkey, replica.id, 1)
    visit = visitor.visit()
    visit.page.route_web_socket("**/live", lambda socket: socket.close())
    page = visit.go(f"/replicas/{replica.id}")
    pill = page.locator("[data-freshness]").first
    expect(pill).to_contain_text("Reconnecting")
    fleet.probe_write(replica, Probe.DOWN, "refused")
    live.axis_write(replica.id, ProcessAxis(Process.FAILED, time.time(), detail="gone"))
    fleet.open_set(valkey, replica.id, 4)
    expect(page.locator("#state")).to_have_text("Failed", timeout=25_000)
    expect(page.locator('[data-figure="in_flight"]')).to_have_text("4", timeout=25_000)
    expect(page.locator("[data-requests] tbody tr")).to_have_count(4)
    expect(pill).to_contain_text("Reconnecting")


def test_memory_stays_flat_under_many_updates(
    visitor: Visitor, replica: Replica, valkey: redis.Redis
) -> None:
    load_set(replica, running=0)
    _visit, page = opened(visitor, f"/replicas/{replica.id}")
    session = page.context.new_cdp_session(page)

    def updates(for_s: float) -> None:
        end, n = time.monotonic() + for_s, 0
        while time.monotonic() < end:
            n += 1
            fleet.open_set(valkey, replica.id, n % 40)
            load_set(replica, running=n % 9, waiting=n % 5, kv_cache=(n % 100) / 100)
            fleet.probe_write(replica, Probe.UP, f"probe {n}")
            page.wait_for_timeout(1000 / UPDATES_PER_S)

    def heap_mib() -> float:
        session.send("HeapProfiler.collectGarbage")
        usage = session.send("Runtime.getHeapUsage")
        return float(usage["usedSize"]) / MIB

    updates(10)
    before = heap_mib()
    # Texts too: what is left beside an element that went away is no element.
    nodes = page.evaluate(COUNT_NODES)
    updates(UPDATES_FOR_S)
    growth = heap_mib() - before
    more = page.evaluate(COUNT_NODES) - nodes
    assert growth < 1.0 and more < 250, (before, growth, more)
