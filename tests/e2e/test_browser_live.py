"""Live pages in a real Chromium, over the real product: what they say is true, also
while the server is frozen, cut off, or killed."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator

import httpx
import psutil
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.product import Product, eventually

pytestmark = [
    pytest.mark.browser,
    pytest.mark.processes,
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def pages(browser: Browser, demo: Product) -> Iterator[Page]:
    context = browser.new_context(locale="en-US")
    page = context.new_page()
    page.set_default_timeout(15_000)
    page.goto(f"{demo.console}/login")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(demo.secret("admin-password"))
    page.get_by_role("button", name="Log in").click()
    yield page
    context.close()


def replica_ids(product: Product) -> list[str]:
    return sorted(product.states())


def process_of(product: Product, replica_id: str) -> psutil.Process:
    """The engine process of a replica, by the mark that it carries."""

    def found() -> psutil.Process | None:
        for process in psutil.process_iter():
            try:
                variables, command = process.environ(), " ".join(process.cmdline())
            except (psutil.Error, OSError):
                continue
            owner = variables.get("SLUICE_REPLICA_OWNER", "")
            mine = owner.startswith(str(product.data_dir))
            named = variables.get("SLUICE_REPLICA") == replica_id
            if mine and named and "--model" in command and "keeper" not in command:
                return process
        return None

    process = eventually(found, within_s=10)
    assert isinstance(process, psutil.Process)
    return process


def console_of(product: Product) -> psutil.Process:
    for process in product.processes():
        if "console.serve" in process.cmdline():
            return process
    raise AssertionError("the console does not run")


def pill(page: Page) -> Locator:
    return page.locator("[data-freshness]")


def open_replica(page: Page, product: Product, replica_id: str) -> Locator:
    """The state on the replica's page, which is live and healthy."""
    page.goto(f"{product.console}/replicas/{replica_id}")
    state = page.locator("#state")
    expect(state).to_have_text("Healthy", timeout=60_000)
    expect(pill(page)).to_have_text("Live")
    return state


def test_a_killed_replica_is_shown_and_so_is_its_return(
    pages: Page, demo: Product
) -> None:
    replica_id = replica_ids(demo)[0]
    state = open_replica(pages, demo, replica_id)
    region = pages.locator("#replica-state")
    expect(region).not_to_contain_text("Restarts")
    process_of(demo, replica_id).kill()
    # Its node may have it back within a second; that it was gone stays to be seen.
    expect(region).to_contain_text("Restarts", timeout=30_000)
    expect(state).to_have_text("Healthy", timeout=60_000)
    timeline = pages.locator("#replica-timeline")
    expect(timeline).to_contain_text("Its process ended by itself.", timeout=20_000)
    assert demo.states()[replica_id] == "healthy"


def test_a_drain_is_shown_to_its_end(pages: Page, demo: Product) -> None:
    replica_id = replica_ids(demo)[0]
    state = open_replica(pages, demo, replica_id)
    pages.get_by_role("button", name="Drain…").click()
    dialog = pages.get_by_role("dialog")
    expect(dialog).to_contain_text("other replica of this version is ready")
    dialog.get_by_role("button", name=f"Drain {replica_id}").click()
    expect(state).to_have_text("Draining")
    region = pages.locator("#replica-state")
    expect(region).to_contain_text("Nothing runs on it any more.", timeout=30_000)
    pages.get_by_role("button", name="Enable", exact=True).click()
    expect(state).to_have_text("Healthy")


def test_a_hung_replica_is_no_longer_called_healthy(pages: Page, demo: Product) -> None:
    replica_id = replica_ids(demo)[0]
    state = open_replica(pages, demo, replica_id)
    process = process_of(demo, replica_id)
    process.suspend()
    try:
        expect(state).to_have_text(re.compile("Suspect|Down"), timeout=60_000)
        expect(pages.locator("#replica-state")).to_contain_text("probe")
    finally:
        process.resume()
    expect(state).to_have_text("Healthy", timeout=60_000)


def test_a_frozen_server_makes_the_page_stale_then_offline_and_then_live_again(
    pages: Page, demo: Product
) -> None:
    state = open_replica(pages, demo, replica_ids(demo)[0])
    console = console_of(demo)
    began = time.monotonic()
    console.suspend()
    try:
        expect(pill(pages)).to_contain_text("Stale: last heard", timeout=18_000)
        expect(state).to_have_text("Healthy")
        expect(pages.locator("#replica-state")).to_have_class(re.compile("is-stale"))
        expect(pill(pages)).to_contain_text("Offline: last heard", timeout=25_000)
        assert time.monotonic() - began < 40
    finally:
        console.resume()
    expect(pill(pages)).to_have_text("Live", timeout=40_000)
    expect(pages.locator("#replica-state")).not_to_have_class(re.compile("is-stale"))


def test_a_page_catches_up_with_what_it_missed_while_the_console_was_gone(
    pages: Page, demo: Product
) -> None:
    replica_id = replica_ids(demo)[0]
    state = open_replica(pages, demo, replica_id)
    console = console_of(demo)
    with demo.api() as api:
        assert api.post(f"/replicas/{replica_id}/disable").status_code == 200
    try:
        console.send_signal(signal.SIGKILL)
        expect(pill(pages)).to_contain_text("Reconnecting", timeout=20_000)
        expect(pill(pages)).to_have_text("Live", timeout=40_000)
        expect(state).to_have_text("Disabled", timeout=20_000)
    finally:
        # The tests that follow need it.
        eventually(lambda: enabled(demo, replica_id), within_s=30)
    expect(state).to_have_text("Healthy", timeout=20_000)


def enabled(product: Product, replica_id: str) -> bool:
    """False while the console is still on its way back."""
    try:
        with product.api() as api:
            return api.post(f"/replicas/{replica_id}/enable").status_code == 200
    except httpx.HTTPError:
        return False


def test_the_log_and_the_command_are_those_of_the_process(
    pages: Page, demo: Product
) -> None:
    replica_id = replica_ids(demo)[0]
    open_replica(pages, demo, replica_id)
    expect(pages.locator("[data-log-lines] p").first).to_be_attached()
    command = " ".join(process_of(demo, replica_id).cmdline())
    shown = pages.locator("#launch").inner_text()
    assert shown.split()[-3:] == command.split()[-3:]
