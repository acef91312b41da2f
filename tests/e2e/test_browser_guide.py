"""The guide in a real browser: narrow, dark, in Chinese, by keyboard alone."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from console import guide
from tests.e2e.browser import OVERFLOW, Visitor

pytestmark = pytest.mark.usefixtures("valkey")

WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
ADDRESSES = ("/help", *(f"/help/{name}" for name in guide.CHAPTERS), "/api/v1/docs")
# Between them they have every kind of content.
EXAMINED = ("/help", "/help/api", "/help/benchmarks", "/api/v1/docs")


@pytest.mark.parametrize(
    ("language", "theme", "width"), [("en", "light", 320), ("zh-hans", "dark", 1440)]
)
def test_no_chapter_complains_scrolls_sideways_or_shuts_anybody_out(
    visitor: Visitor, language: str, theme: str, width: int
) -> None:
    strict = visitor.visit(width=width, language=language, theme=theme)
    open_ = visitor.visit(width=width, language=language, theme=theme, bypass_csp=True)
    for address in ADDRESSES:
        page = strict.go(address)
        assert page.evaluate(OVERFLOW) <= 0, address
    for address in EXAMINED:
        found = Axe().run(open_.go(address), options=WCAG).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], address
    assert strict.complaints == []


def test_a_page_leads_to_its_chapter_and_on_by_keyboard(visitor: Visitor) -> None:
    visit = visitor.visit(language="zh-hans")
    page = visit.go("/gateways")
    title = guide.chapter_read("weights", "zh-hans").title
    page.get_by_role("link", name=f"帮助：{title}").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    section = guide.chapter_read("weights", "zh-hans").sections[-1]
    page.get_by_role("link", name=section.title).focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{visitor.url}/help/weights#{section.anchor}")
    expect(page.locator(f"#{section.anchor}")).to_be_in_viewport()
    assert visit.complaints == []
