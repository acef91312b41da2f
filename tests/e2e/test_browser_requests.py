"""Requests and usage in a real Chromium."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from routing.contracts.outcome import Attempt, Choice, Ending, Outcome, Tier, Why
from tests import fleet, outcomes
from tests.e2e.browser import OVERFLOW, Visitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
LONG = "a-very-long-name-that-nobody-can-break-" * 2 + "x"


def traffic(count: int = 70) -> list[str]:
    """A cluster with requests of several kinds, the newest last; their ids."""
    fleet.fleet_fill()
    now = time.time()
    made: list[Outcome] = []
    for n in range(count):
        at = now - (count - n) * 40
        facts: dict[str, Any] = {"model": "qwen3-8b", "replica": "qwen3-8b-v1-1"}
        if n % 7 == 3:
            made.append(outcomes.refused(at))
            continue
        if n % 11 == 5:
            facts |= {"version": "v2", "replica": "qwen3-8b-v2-1", "estimated": True}
        if n % 13 == 6:
            facts |= {"status": 502, "ending": Ending.UPSTREAM_FAILED}
            facts |= {"code": "upstream_error"}
        made.append(outcomes.outcome(at, **facts))
    outcomes.count(made)
    return outcomes.keep(*made)


def overflow(page: Page) -> int:
    found = page.evaluate(OVERFLOW)
    return int(found)


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize(("language", "theme"), [("en", "light"), ("zh-hans", "dark")])
def test_no_page_complains_shuts_anybody_out_or_scrolls_sideways(
    visitor: Visitor, width: int, language: str, theme: str
) -> None:
    made = traffic()
    (long,) = outcomes.keep(
        outcomes.outcome(model=LONG, version=LONG, replica=LONG, team=LONG[:63])
    )
    outcomes.count([outcomes.outcome(model=LONG, version=LONG)])
    strict = visitor.visit(width=width, language=language, theme=theme)
    # The tool puts a script into the page, which the policy rightly refuses.
    open_ = visitor.visit(width=width, language=language, theme=theme, bypass_csp=True)
    for path in (
        "/requests",
        "/requests?team=search&status=5xx&slow=1&find=x&last=nonsense",
        f"/requests/{made[-1]}",
        f"/requests/{made[3]}",
        f"/requests/{long}",
        f"/requests/{outcomes.request_id(time.time())}",
        "/usage",
        "/usage?by=version&team=search&last=90d",
        "/teams/search",
    ):
        page = open_.go(path)
        assert overflow(page) <= 0, path
        found = Axe().run(page, options=WCAG).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], path
        strict.go(path)
    complaints = [text for text in strict.complaints if "404" not in text]
    assert complaints == []


def test_a_request_is_found_by_its_id_from_a_filtered_list(visitor: Visitor) -> None:
    made = traffic()
    visit = visitor.visit()
    page = visit.go("/requests?team=nobody")
    expect(page.get_by_role("heading", name="No request matches")).to_be_visible()
    page.get_by_label("Find by id").fill(f"  x-request-id: {made[0].upper()}")
    page.get_by_role("button", name="Find").click()
    expect(page).to_have_url(f"{visitor.url}/requests/{made[0]}")
    expect(page.locator("#request-id")).to_have_text(made[0])
    assert visit.complaints == []


def test_filters_are_set_by_keyboard_shown_and_taken_off(visitor: Visitor) -> None:
    traffic()
    visit = visitor.visit()
    page = visit.go("/requests")
    rows = page.locator("table.requests tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_label("Ending", exact=True).select_option("upstream_failed")
    page.get_by_text("More filters").press("Enter")
    page.get_by_label("Version", exact=True).fill("v1")
    page.get_by_label("Version", exact=True).press("Enter")
    expect(page).to_have_url(re.compile("ending=upstream_failed"))
    expect(rows.first).to_contain_text("Replica failed")
    failed = rows.count()
    assert 0 < failed < 50
    page.get_by_role("link", name="Ending Replica failed").click()
    expect(rows).to_have_count(50)
    expect(page.get_by_label("Version", exact=True)).to_have_value("v1")
    page.get_by_role("link", name="Clear all").click()
    expect(page).to_have_url(f"{visitor.url}/requests")
    assert visit.complaints == []


def test_pages_lead_to_the_oldest_and_back_to_the_live_one(visitor: Visitor) -> None:
    made = traffic()
    visit = visitor.visit()
    page = visit.go("/requests")
    rows = page.locator("table.requests tbody tr")
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(20)
    expect(page.locator(f"#q-{made[0]}")).to_be_visible()
    expect(page.locator("[data-freshness]")).to_have_count(0)
    page.get_by_role("link", name="Newer").click()
    expect(rows).to_have_count(50)
    expect(page.locator(f"#q-{made[-1]}")).to_be_visible()
    expect(page.locator("[data-freshness]")).to_have_text("Live")
    assert visit.complaints == []


def test_the_first_page_goes_on_by_itself_but_not_under_somebodys_hands(
    visitor: Visitor,
) -> None:
    traffic(5)
    visit = visitor.visit()
    page = visit.go("/requests")
    page.mouse.move(1, 1)
    rows = page.locator("table.requests tbody tr")
    expect(rows).to_have_count(5)
    outcomes.keep(outcomes.outcome())
    expect(rows).to_have_count(6, timeout=20_000)
    pause = page.get_by_role("button", name="Pause")
    pause.click()
    expect(page.locator("[data-held]")).to_have_text("Paused")
    expect(page.locator("[data-freshness]")).to_be_hidden()
    outcomes.keep(outcomes.outcome())
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    # Two turns of the poll, which asks every four seconds.
    page.wait_for_timeout(9000)
    assert asked == []
    expect(rows).to_have_count(6)
    expect(page.locator("#request-rows.is-stale")).to_have_count(0)
    pause.click()
    expect(rows).to_have_count(7)
    expect(page.locator("[data-freshness]")).to_have_text("Live")
    rows.first.locator("a").first.focus()
    expect(page.locator("[data-held]")).to_contain_text("Held while")
    assert visit.complaints == []


def test_the_waterfall_is_a_table_whose_lengths_add_up(visitor: Visitor) -> None:
    fleet.fleet_fill()
    choice = Choice(Tier.READY, Why.LOWER_COST, 2, 3, 1.0, "qwen3-8b-v1-2", 2.0)
    attempt = Attempt(
        "qwen3-8b-v1-1", "v1", duration_ms=900.0, at_ms=100.0, choice=choice
    )
    (one,) = outcomes.keep(
        outcomes.outcome(
            model="qwen3-8b",
            replica="qwen3-8b-v1-1",
            attempts=(attempt,),
            received_ms=10.0,
            authorized_ms=20.0,
            queue_ms=0.0,
            admitted_ms=30.0,
            first_byte_ms=400.0,
            first_content_ms=500.0,
            last_byte_ms=900.0,
            duration_ms=1000.0,
        )
    )
    visit = visitor.visit()
    page = visit.go(f"/requests/{one}")
    table = page.locator("table.phases")
    names = table.locator("tbody th").all_inner_texts()
    assert [name.split("\n")[0].split(" attempt")[0] for name in names] == [
        "Receive the request",
        "Check the key",
        "Route it",
        "Not accounted for",
        "Wait for the first byte",
        "Prefill: first byte to first content",
        "Decode: first content to last byte",
        "Deliver the rest",
    ]
    lengths = table.locator("tbody td:nth-child(4)").all_inner_texts()
    assert sum(float(text.split()[0]) for text in lengths) == 1000.0
    # Each bar begins where the one before ends: one scale for all of them.
    boxes = [bar.bounding_box() for bar in table.locator("tbody rect").all()]
    ends = [(box["x"], box["x"] + box["width"]) for box in boxes if box]
    assert len(ends) == 8
    for (_start, end), (start, _end) in zip(ends, ends[1:], strict=False):
        assert abs(start - end) < 2.5
    expect(page.locator(".attempts")).to_contain_text(
        "qwen3-8b-v1-1 cost 1 and qwen3-8b-v1-2 2"
    )
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == one
    assert visit.complaints == []


def test_a_request_on_its_way_appears_on_its_own_page(visitor: Visitor) -> None:
    visit = visitor.visit()
    one = outcomes.request_id(time.time())
    page = visit.go(f"/requests/{one}")
    expect(page.locator("h1")).to_contain_text("no outcome")
    outcomes.keep(outcomes.outcome(request_id=one))
    expect(page.locator("#request-id")).to_have_text(one, timeout=20_000)


def test_usage_leads_from_a_team_to_its_keys_and_to_a_file(visitor: Visitor) -> None:
    traffic()
    visit = visitor.visit()
    page = visit.go("/usage")
    page.get_by_role("link", name="By team").click()
    page.get_by_role("link", name="search", exact=True).click()
    expect(page).to_have_url(re.compile("by=key.*team=search"))
    expect(page.locator("table.usage tbody tr")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as CSV").click()
    assert download.value.suggested_filename.startswith("usage-")
    page.get_by_role("link", name="Team search").click()
    expect(page).to_have_url(re.compile(r"by=key$"))
    assert visit.complaints == []
