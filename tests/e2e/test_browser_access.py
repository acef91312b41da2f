"""Pages for those who see, move, read or connect otherwise than most."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from cluster.models import Model, Replica
from routing.models import ApiKey, Team
from tests import fleet
from tests.e2e.browser import OVERFLOW, Visitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
    pytest.mark.timeout(300),
]

KINDS = (
    "/",
    "/models/qwen3-8b",
    "/models/qwen3-8b/traffic",
    "/replicas",
    "/replicas/qwen3-8b-v1-1",
    "/requests",
    "/keys",
    "/usage",
    "/audit",
    "/new/team",
)
# Web Content Accessibility Guidelines 2.2, 1.4.12.
TEXT_SPACING = """
* { line-height: 1.5 !important; letter-spacing: .12em !important;
    word-spacing: .16em !important; }
p { margin-bottom: 2em !important; }
"""
# Text that is cut off without saying so by an ellipsis.
CUT = """() => [...document.querySelectorAll("main *, .rail *, .top *")].filter((e) => {
  const style = getComputedStyle(e);
  return e.offsetWidth > 1 && e.clientWidth && style.overflowX === "hidden"
    && style.textOverflow !== "ellipsis" && e.scrollWidth > e.clientWidth + 1;
}).map((e) => e.outerHTML.slice(0, 120))"""
MOVING = """() => [...document.querySelectorAll("*")].filter((e) => {
  const style = getComputedStyle(e);
  return style.animationName !== "none" || parseFloat(style.transitionDuration) > 0;
}).map((e) => e.outerHTML.slice(0, 120)).concat(document.getAnimations().map(String))"""


@pytest.fixture
def drained(visitor: Visitor) -> tuple[Page, Replica]:
    """The page of a replica that was just drained, with the offer to undo it; its
    clock is the test's."""
    replica = fleet.replica_add(fleet.model_add("qwen", "v1"), "v1", 8001)
    page = visitor.visit().page
    page.clock.install()
    page.goto(f"{visitor.url}/replicas/{replica.id}")
    page.get_by_role("button", name="Drain…").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain qwen").click()
    expect(page.locator(".undo")).to_contain_text("is draining")
    return page, replica


def test_the_offer_to_undo_goes_by_itself(drained: tuple[Page, Replica]) -> None:
    page, _replica = drained
    page.mouse.move(5, 5)
    left = page.locator("[data-undo-left]")
    before = _number(left.inner_text())
    page.clock.run_for(3_000)
    # Its clock goes on by itself, too.
    assert _number(left.inner_text()) <= before - 3
    page.clock.run_for(8_000)
    expect(page.locator(".undo")).to_have_count(0)


def _number(text: str) -> int:
    return int("".join(filter(str.isdigit, text)))


@pytest.mark.parametrize("how", ["pointer", "focus"])
def test_the_offer_to_undo_waits_under_a_pointer_and_under_the_focus(
    drained: tuple[Page, Replica], how: str
) -> None:
    page, replica = drained
    button = page.locator(".undo").get_by_role("button")
    button.hover() if how == "pointer" else button.focus()
    page.clock.run_for(60_000)
    expect(button).to_be_visible()
    button.press("Enter")
    expect(page.locator("#replica-state")).to_contain_text("Healthy")
    replica.refresh_from_db()
    assert replica.admin_state == "enabled"


def test_without_a_network_nothing_is_sent_and_nothing_typed_is_lost(
    visitor: Visitor,
) -> None:
    visit = visitor.visit()
    page = visit.go("/new/team")
    page.locator("#id_slug").fill("ops")
    page.locator("#id_name").fill("Operations")
    visit.context.set_offline(True)
    page.locator("main form").get_by_role("button").last.click()
    told = page.get_by_role("alert")
    expect(told).to_contain_text("You are offline. Nothing was sent")
    expect(page.locator("#id_name")).to_have_value("Operations")
    assert not Team.objects.filter(slug="ops").exists()
    visit.context.set_offline(False)
    expect(told).to_contain_text("You are online again")
    assert not Team.objects.filter(slug="ops").exists()
    page.locator("main form").get_by_role("button").last.click()
    expect(page).to_have_url(f"{visitor.url}/teams/ops")
    assert Team.objects.get(slug="ops").name == "Operations"


def test_back_after_a_write_shows_what_is_and_sends_nothing_again(
    visitor: Visitor,
) -> None:
    fleet.model_add("qwen", "v1", description="before")
    page = visitor.visit().go("/models/qwen")
    page.goto(f"{visitor.url}/models/qwen/edit")
    field = page.locator("#id_description")
    field.fill("after")
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(f"{visitor.url}/models/qwen")
    page.go_back()
    expect(field).to_have_value("after")
    field.fill("later")
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(f"{visitor.url}/models/qwen")
    assert Model.objects.get(name="qwen").description == "later"


def test_a_key_that_was_issued_is_not_issued_again_by_loading_its_page_again(
    visitor: Visitor,
) -> None:
    fleet.team_with_key("search")
    page = visitor.visit().go("/teams/search/new-key")
    page.locator("#id_name").fill("laptop")
    page.locator("main form").get_by_role("button").last.click()
    secret = page.get_by_text("sk-").first
    expect(secret).to_be_visible()
    page.reload()
    expect(page.locator("main")).to_contain_text("That form was sent before.")
    page.go_back()
    assert ApiKey.objects.filter(name="laptop").count() == 1


def test_paper_gets_what_a_page_says_without_what_one_presses(
    visitor: Visitor,
) -> None:
    fleet.fleet_fill()
    page = visitor.visit(theme="dark").page
    page.emulate_media(media="print")
    for path in ("/keys", "/audit", "/replicas", "/models/qwen3-8b/history"):
        page.goto(visitor.url + path)
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("main table").first).to_be_visible()
        for gone in (".top", ".rail", "main form button"):
            assert not any(one.is_visible() for one in page.locator(gone).all()), (
                path,
                gone,
            )
        # Dark pages would cost the ink of a whole sheet.
        ground = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(ground) == "rgb(255, 255, 255)", path


def test_colours_of_the_system_leave_every_share_and_mark_to_be_seen(
    visitor: Visitor,
) -> None:
    fleet.fleet_fill()
    page = visitor.visit().page
    page.emulate_media(forced_colors="active")
    page.goto(f"{visitor.url}/models/qwen3-8b/traffic")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    seen = 0
    for part in page.locator(".card .mark .icon, .swatch .series-1").all():
        colour = part.evaluate(
            "e => { const s = getComputedStyle(e);"
            " return e.matches('svg') ? s.color : s.fill; }"
        )
        assert colour != ground
        seen += 1
    assert seen >= 4
    page.get_by_role("spinbutton").or_(page.locator("[data-amount]")).first.focus()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) != "none"


def test_nothing_moves_for_those_who_want_rest(visitor: Visitor) -> None:
    fleet.fleet_fill()
    page = visitor.visit().page
    page.emulate_media(reduced_motion="reduce")
    for path in KINDS:
        page.goto(visitor.url + path)
        assert page.evaluate(MOVING) == [], path


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_wider_spaced_text_cuts_nothing_off(visitor: Visitor, language: str) -> None:
    fleet.fleet_fill()
    visit = visitor.visit(width=1280, language=language, bypass_csp=True)
    for path in KINDS:
        page = visit.go(path)
        page.add_style_tag(content=TEXT_SPACING)
        assert page.evaluate(OVERFLOW) <= 0, path
        assert page.evaluate(CUT) == [], path


TABBABLE = """() => [...document.querySelectorAll("a[href], button, input, select")]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }))
  .filter((e) => e.tabIndex >= 0 && !e.disabled).length"""
# Where the focus is, and whether something lies over it.
FOCUSED = """() => {
  const e = document.activeElement;
  const { x, y, width, height } = e.getBoundingClientRect();
  const top = document.elementFromPoint(x + width / 2, y + height / 2);
  const parts = [e, e.closest("label")].filter(Boolean);
  const free = !top || top.contains(e) || parts.some((one) => one.contains(top));
  const place = [...document.querySelectorAll("*")].indexOf(e);
  return { free, name: `${place} ${e.outerHTML.slice(0, 80)}` };
}"""


def test_the_tab_key_reaches_everything_and_nothing_covers_it(
    visitor: Visitor,
) -> None:
    fleet.fleet_fill()
    page = visitor.visit().go("/models/qwen3-8b/traffic")
    wanted = page.evaluate(TABBABLE)
    reached, covered = set(), set()
    for _step in range(wanted + 5):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        reached.add(found["name"])
        if not found["free"]:
            covered.add(found["name"])
    assert covered == set()
    assert len(reached) >= wanted
