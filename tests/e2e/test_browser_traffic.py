"""The slider in a real Chromium: its rule, by mouse, by keyboard, against others."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from cluster.health import Probe
from cluster.models import Replica
from routing.selectors import route_get, route_view
from tests import fleet
from tests.e2e.browser import Visit, Visitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

ADDRESS = "/models/qwen/traffic"

# Several steps each, by a generator with a fixed seed.
GESTURES = (Path(__file__).parent / "gestures.js").read_text("utf-8")


@pytest.fixture
def visit(visitor: Visitor) -> Visit:
    """Versions v1 (80 %), v2 (20 %), v3 (0 %), each with a healthy replica."""
    model = fleet.model_add("qwen", "v1", "v2", "v3")
    for number, version in enumerate(("v1", "v2", "v3")):
        fleet.replica_add(model, version, 8001 + number)
    fleet.weights_give("qwen", {"v1": 8000, "v2": 2000})
    fleet.gateway_set("g1")
    return visitor.visit()


def shares() -> dict[str, int]:
    return {version.name: bp for version, bp in route_view(model="qwen").weights}


def fields(page: Page) -> list[str]:
    return [field.input_value() for field in page.locator("[data-amount]").all()]


def test_the_sum_always_holds_and_out_and_back_restores(visit: Visit) -> None:
    visit.go(ADDRESS)
    result = visit.page.evaluate(GESTURES, 20_000)
    assert result["bad"] == []
    assert result["moved"] > 20_000


def test_a_drag_moves_the_others_in_proportion_and_writes_nothing(
    visit: Visit,
) -> None:
    page = visit.go(ADDRESS)
    posts: list[str] = []
    page.on("request", lambda r: posts.append(r.url) if r.method == "POST" else None)
    box = page.get_by_role("slider", name="Share of v3").bounding_box()
    assert box
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 10, y)
    page.mouse.down()
    for step in range(1, 11):
        page.mouse.move(box["x"] + 10 + step * (box["width"] - 20) / 20, y)
    assert fields(page) == ["40", "10", "50"]
    page.mouse.move(box["x"] + 10, y)
    assert fields(page) == ["80", "20", "0"]
    page.mouse.move(box["x"] + 10 + (box["width"] - 20) / 5, y)
    page.mouse.up()
    assert fields(page) == ["64", "16", "20"]
    assert posts == [] and shares() == {"v1": 8000, "v2": 2000, "v3": 0}
    expect(page.locator("[data-preview]")).to_contain_text("20 % of the requests move.")
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.locator(".undo")).to_contain_text("Saved as generation 3.")
    assert shares() == {"v1": 6400, "v2": 1600, "v3": 2000}
    assert len(posts) == 1
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("[data-results]")).to_contain_text("Undone: generation 4")
    assert shares() == {"v1": 8000, "v2": 2000, "v3": 0}
    assert visit.complaints == []


def test_everything_works_by_keyboard_and_is_said(visit: Visit) -> None:
    page = visit.go(ADDRESS)
    v2 = page.get_by_role("slider", name="Share of v2")
    v2.focus()
    for key, expected in (
        ("ArrowRight", ["79", "21", "0"]),
        ("ArrowLeft", ["80", "20", "0"]),
        ("Shift+ArrowUp", ["70", "30", "0"]),
        ("PageDown", ["80", "20", "0"]),
        ("End", ["0", "100", "0"]),
        ("Home", ["100", "0", "0"]),
    ):
        page.keyboard.press(key)
        assert fields(page) == expected, key
    assert v2.get_attribute("aria-valuetext") == "v2 0 percent, was 20"
    expect(page.locator("[data-announce]")).to_contain_text("v1 100 %, v2 0 %, v3 0 %")
    assert shares() == {"v1": 8000, "v2": 2000, "v3": 0}
    field = page.get_by_label("Percent for v2")
    field.fill("12.34")
    assert fields(page) == ["87.66", "12.34", "0"]
    page.keyboard.press("ArrowUp")
    assert fields(page) == ["87.65", "12.35", "0"]
    page.keyboard.press("Enter")
    expect(page.locator(".undo")).to_contain_text("Saved as generation 3.")
    assert shares() == {"v1": 8765, "v2": 1235, "v3": 0}


def test_locks_presets_and_even(visit: Visit) -> None:
    page = visit.go(ADDRESS)
    page.get_by_label("Lock v1").check()
    page.get_by_label("Percent for v3").focus()
    page.get_by_role("button", name="10 %", exact=True).click()
    assert fields(page) == ["80", "10", "10"]
    page.get_by_role("button", name="100 %", exact=True).click()
    assert fields(page) == ["80", "0", "20"]
    page.get_by_role("button", name="Even").click()
    assert fields(page) == ["80", "10", "10"]
    page.get_by_label("Lock v1").uncheck()
    page.get_by_role("button", name="Even").click()
    assert fields(page) == ["33.34", "33.33", "33.33"]
    page.get_by_role("link", name="Discard").click()
    assert fields(page) == ["80", "20", "0"]


def test_a_big_step_asks_with_the_effect_in_numbers(visit: Visit) -> None:
    page = visit.go(ADDRESS)
    page.get_by_label("Percent for v3").fill("60")
    page.get_by_role("button", name="Apply", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("60 % of the requests change their version at once.")
    dialog.get_by_role("button", name="Cancel").click()
    assert shares()["v3"] == 0
    page.get_by_role("button", name="Apply", exact=True).click()
    dialog.get_by_role("button", name="Apply these weights").click()
    expect(page.locator(".undo")).to_contain_text("Saved")
    assert shares() == {"v1": 3200, "v2": 800, "v3": 6000}


def test_an_unready_version_is_capped_and_says_why(visit: Visit) -> None:
    replica = Replica.objects.get(pk="qwen-v3-1")
    fleet.probe_write(replica, Probe.DOWN)
    page = visit.go(ADDRESS)
    row = page.locator('[data-version="v3"]')
    expect(row).to_contain_text("At most 0 % now: no replica of it is ready.")
    expect(row.get_by_role("slider")).to_be_disabled()
    expect(row).to_contain_text("Not ready")
    page.get_by_label("Percent for v2").fill("50")
    assert fields(page) == ["50", "50", "0"]


def test_a_draft_survives_a_reload_and_somebody_else_is_told(visit: Visit) -> None:
    page = visit.go(ADDRESS)
    page.get_by_label("Percent for v3").fill("5")
    page.reload()
    expect(page.locator("[data-draft-kept]")).to_contain_text("was kept")
    assert fields(page) == ["76", "19", "5"]
    fleet.weights_give("qwen", {"v1": 5000, "v2": 5000})
    banner = page.locator("[data-conflict]")
    expect(banner).to_be_visible(timeout=15_000)
    expect(banner).to_contain_text("v1 50 %, v2 50 %, v3 0 %")
    assert fields(page) == ["76", "19", "5"]
    apply = page.get_by_role("button", name="Apply", exact=True)
    expect(apply).to_have_attribute("aria-disabled", "true")
    page.get_by_label("Percent for v3").press("Enter")
    assert shares() == {"v1": 5000, "v2": 5000, "v3": 0}
    page.reload()
    expect(banner).to_be_visible()
    page.get_by_role("button", name="Keep mine and apply it").click()
    expect(page.locator(".undo")).to_contain_text("Saved as generation 4.")
    assert shares() == {"v1": 7600, "v2": 1900, "v3": 500}


def test_a_conflict_found_by_the_server_lets_me_take_theirs(visit: Visit) -> None:
    page = visit.go(ADDRESS)
    page.route(
        f"**{ADDRESS}",
        lambda r: r.abort() if r.request.method == "GET" else r.continue_(),
    )
    page.get_by_label("Percent for v3").fill("5")
    fleet.weights_give("qwen", {"v1": 5000, "v2": 5000})
    page.get_by_role("button", name="Apply", exact=True).click()
    banner = page.locator("[data-conflict]")
    expect(banner).to_be_visible()
    assert fields(page) == ["76", "19", "5"]
    page.unroute(f"**{ADDRESS}")
    page.get_by_role("link", name="Take theirs").click()
    expect(banner).to_be_hidden()
    assert fields(page) == ["50", "50", "0"]
    assert route_get(model="qwen").generation == 3


def test_an_untouched_editor_follows_somebody_else(visit: Visit) -> None:
    page = visit.go(ADDRESS)
    fleet.weights_give("qwen", {"v1": 5000, "v2": 5000})
    expect(page.get_by_label("Percent for v1")).to_have_value("50", timeout=15_000)
    expect(page.locator("[data-conflict]")).to_be_hidden()


def test_applied_converges_before_the_eyes(visit: Visit) -> None:
    page = visit.go(ADDRESS)
    expect(page.locator("#applied")).to_contain_text("Applied by 1 of 1 gateways")
    page.get_by_label("Percent for v3").fill("10")
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.locator("#applied")).to_contain_text("Applied by 0 of 1 gateways")
    fleet.gateway_set("g1")
    expect(page.locator("#applied")).to_contain_text(
        "Applied by 1 of 1 gateways", timeout=15_000
    )


def test_measured_follows_the_traffic_and_leaves_a_draft_alone(visit: Visit) -> None:
    page = visit.go(ADDRESS)
    bars = page.locator("#applied")
    expect(bars).to_contain_text("Nothing was served yet by generation 2.")
    preview = page.locator("[data-preview]")
    page.get_by_label("Percent for v3").fill("5")
    expect(preview).to_contain_text("Requests per minute: unknown")
    page.get_by_label("Percent for v3").focus()
    fleet.draws_set("g1", "qwen", {"v1": 790, "v2": 210})
    fleet.served_set("qwen", {("v1", "v1"): 790, ("v2", "v2"): 205, ("v2", "v1"): 5})
    fleet.minutes_set("qwen", per_minute=120)
    expect(bars).to_contain_text("1,000 requests since generation 2", timeout=8000)
    expect(bars).to_contain_text("2.38 % of the draws for v2 (5 of 210)")
    expect(bars.locator("tbody tr").nth(1)).to_contain_text("18.11 % to 23.12 %")
    expect(bars).to_contain_text("Weights hold")
    assert bars.locator(".whisker").count() == 1
    assert fields(page) == ["76", "19", "5"]
    focused = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(focused) == "Percent for v3"
    page.get_by_label("Percent for v3").fill("10")
    expect(preview).to_contain_text("That is about 12 of 120 requests a minute.")
    assert shares() == {"v1": 8000, "v2": 2000, "v3": 0}
    assert visit.complaints == []


def test_the_page_works_without_a_script(visitor: Visitor, visit: Visit) -> None:
    context = visitor.browser.new_context(java_script_enabled=False)
    visitor.contexts.append(context)
    context.add_cookies(visit.context.cookies())  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(visitor.url + ADDRESS)
    page.get_by_label("Percent for v1").fill("70")
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.locator("#split-problem")).to_contain_text("The shares sum to 90")
    page.get_by_label("Percent for v2").fill("30")
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.locator(".undo")).to_contain_text("Saved as generation 3.")
    assert shares() == {"v1": 7000, "v2": 3000, "v3": 0}


def test_taking_theirs_needs_no_script_to_have_run(visit: Visit) -> None:
    """The link itself gives the draft up: it may be pressed on a page still loading."""
    page = visit.go(ADDRESS)
    page.get_by_label("Percent for v3").fill("5")
    expect(page.locator("[data-draft-mark]")).to_be_visible()
    page.goto(f"{visit.base_url}{ADDRESS}?theirs")
    assert fields(page) == ["80", "20", "0"]
    expect(page.locator("[data-draft-mark]")).to_be_hidden()
    assert page.url.endswith(ADDRESS)
