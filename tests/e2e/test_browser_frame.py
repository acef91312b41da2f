"""What every page shares, in a real Chromium: by keyboard, in both languages, small."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from console.accounts.models import User
from tests import fleet, outcomes
from tests.e2e.browser import Visitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
    pytest.mark.timeout(300),
]
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}


def barriers(page: Page) -> list[str]:
    found = Axe().run(page, options={"runOnly": WCAG["runOnly"]}).response
    return [violation["id"] for violation in found["violations"]]


def is_wider_than_the_window(page: Page) -> bool:
    return bool(
        page.evaluate(
            "document.documentElement.scrollWidth"
            " > document.documentElement.clientWidth"
        )
    )


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_search_goes_by_keyboard_alone(visitor: Visitor, language: str) -> None:
    fleet.fleet_fill()
    (request,) = outcomes.keep(outcomes.outcome(1e9))
    visit = visitor.visit(language=language)
    page = visit.go("/teams")
    box = page.locator("#seek")
    options = page.locator("#seek-hits [role=option]")
    page.locator(".rail a").first.focus()
    page.keyboard.press("/")
    expect(box).to_be_focused()
    page.keyboard.type("qwen3")
    expect(options.first).to_have_attribute("aria-selected", "true")
    expect(page.locator("[data-seek-count]")).to_contain_text(re.compile(r"\d+"))
    assert barriers(page) == []
    page.keyboard.press("Escape")
    expect(page.locator("#seek-hits")).to_be_hidden()
    expect(page.locator(".rail a").first).to_be_focused()
    page.keyboard.press("Control+k")
    page.keyboard.type("qwen3")
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowUp")
    # Enter of an input method chooses a word, not a hit.
    box.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    expect(page).to_have_url(re.compile("/teams$"))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/models/qwen3-8b$"))
    page.keyboard.press("/")
    page.keyboard.insert_text(request)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/requests/{request}$"))
    assert visit.complaints == []


def test_letters_lead_around_but_never_while_somebody_writes(
    visitor: Visitor,
) -> None:
    fleet.team_with_key("search")
    visit = visitor.visit()
    page = visit.go("/models")
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile("/nodes$"))
    page.wait_for_load_state()
    page.keyboard.press("?")
    dialog = page.locator("#shortcuts")
    expect(dialog).to_be_visible()
    assert barriers(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.goto(page.url.replace("/nodes", "/new/team"))
    field = page.locator("#id_name")
    field.focus()
    page.keyboard.type("g m ? /")
    expect(field).to_have_value("g m ? /")
    expect(dialog).to_be_hidden()
    User.objects.update(shortcuts=False)
    page.goto(page.url.replace("/new/team", "/teams"))
    page.keyboard.press("?")
    page.keyboard.press("/")
    expect(dialog).to_be_hidden()
    expect(page.locator("#seek")).not_to_be_focused()
    page.keyboard.press("Control+k")
    expect(page.locator("#seek")).to_be_focused()
    assert visit.complaints == []


def test_a_copy_on_plain_http_brings_the_very_text(visitor: Visitor) -> None:
    (request,) = outcomes.keep(outcomes.outcome(1e9))
    visit = visitor.visit()
    # What a page over plain http has: no clipboard interface.
    visit.context.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    )
    page = visit.go(f"/requests/{request}")
    button = page.locator("[data-copy-from=request-id]")
    button.click()
    expect(button).to_contain_text("Copied")
    page.locator("#seek").focus()
    page.keyboard.press("Control+v")
    expect(page.locator("#seek")).to_have_value(request)
    # What it found lies over the page.
    page.keyboard.press("Escape")
    page.evaluate("document.execCommand = () => true")
    button.click()
    expect(button).to_contain_text("Not copied")
    assert page.evaluate("getSelection().toString()") == request


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("width", [320, 761, 1100, 2560])
def test_the_frame_fits_every_window(
    visitor: Visitor, language: str, width: int
) -> None:
    fleet.fleet_fill()
    outcomes.keep(outcomes.outcome(1e9))
    User.objects.update(time_zone="America/Los_Angeles")
    visit = visitor.visit(width=width, language=language, theme="dark")
    for path in ("/requests?from=2001-09-09&to=x", "/usage?range=7d", "/search?q=q"):
        page = visit.go(path)
        assert not is_wider_than_the_window(page), path
        assert barriers(page) == [], path
        page.locator("#seek").focus()
        expect(page.locator("#seek-hits [role=option]").first).to_be_visible()
        assert not is_wider_than_the_window(page), path
    assert visit.complaints == []


def test_a_number_explains_itself_and_the_explanation_goes_away(
    visitor: Visitor,
) -> None:
    visit = visitor.visit()
    page = visit.go("/usage")
    opener = page.get_by_role("button", name="What is: Estimated tokens")
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#hint-estimated")).to_be_visible()
    assert barriers(page) == []
    page.keyboard.press("Escape")
    expect(page.locator("#hint-estimated")).to_be_hidden()
    expect(opener).to_be_focused()
    assert visit.complaints == []


def test_a_clock_that_is_wrong_is_told_and_a_slow_answer_is_not(
    visitor: Visitor,
) -> None:
    visit = visitor.visit()
    page = visit.go("/teams")
    expect(page.locator("[data-clock]")).to_be_hidden()
    visit.context.add_init_script(
        "const now = Date.now.bind(Date); Date.now = () => now() - 3600000"
    )
    page.reload()
    expect(page.locator("[data-clock]")).to_contain_text("behind the server's")
    page.evaluate("document.querySelector('[data-clock]').remove()")
    # Only the page is old, not the clock: as when the way was slow.
    late = visitor.visit()
    late.context.route(
        "**/teams",
        lambda route: route.fulfill(
            body=re.sub(r'data-clock="\d+"', 'data-clock="1000"', route.fetch().text()),
            content_type="text/html",
        ),
    )
    with late.page.expect_response("**/livez"):
        late.go("/teams")
    expect(late.page.locator("[data-clock]")).to_be_hidden()


def test_a_region_that_is_not_refreshed_says_why_until_it_is(
    visitor: Visitor,
) -> None:
    fleet.fleet_fill()
    visit = visitor.visit()
    page = visit.go("/requests")
    outcomes.keep(outcomes.outcome(datetime.now(UTC).timestamp()))
    visit.context.route("**/requests", lambda route: route.fulfill(status=500))
    line = page.locator("[data-not-refreshed]")
    expect(line).to_contain_text("the console answered 500", timeout=30_000)
    visit.context.unroute("**/requests")
    expect(line).to_be_hidden(timeout=30_000)
