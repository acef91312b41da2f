"""The analysis charts in a real Chromium, under the policy of the product."""

from __future__ import annotations

import csv
import re
import time
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from routing.contracts.outcome import Ending
from tests import fleet, outcomes
from tests.e2e.browser import OVERFLOW, Visitor
from tests.minutes import minutes_count

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
    pytest.mark.timeout(300),
]

MODEL = "/models/qwen3-8b/analysis"
LOAD_MS = 60_000
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}


def fill() -> None:
    fleet.fleet_fill()
    now = time.time()
    found = [
        outcomes.outcome(
            now - n * 43,
            model="qwen3-8b",
            version="v2" if n % 5 == 0 else "v1",
            ending=Ending.BROKEN if n % 11 == 0 else Ending.COMPLETED,
            first_content_ms=150.0 + n % 90,
            duration_ms=300.0,
        )
        for n in range(1600)
    ]
    outcomes.keep(*found)
    outcomes.count(found)
    minutes_count(found)


def drawn(page: Page) -> None:
    expect(page.locator("[data-analysis][data-done]")).to_be_attached(timeout=LOAD_MS)


@pytest.mark.parametrize(
    ("width", "language", "theme"), [(1440, "en", "light"), (390, "zh-hans", "dark")]
)
def test_charts_are_drawn_under_the_strict_policy(
    visitor: Visitor, width: int, language: str, theme: str
) -> None:
    fill()
    visit = visitor.visit(width=width, language=language, theme=theme)
    page = visit.go(MODEL)
    drawn(page)
    for name in ("traffic", "errors", "ttft", "tokens"):
        plot = page.locator(f'[data-plot="{name}"]')
        svg = plot.locator(".main-svg").first
        assert svg.evaluate("svg => getComputedStyle(svg).position") == "absolute"
        area = plot.locator("[data-plot-area][role=img]")
        expect(area).to_have_attribute("aria-label", re.compile(r": .*\d"))
        assert plot.locator(".annotation").count() >= 1
    assert page.evaluate(OVERFLOW) <= 0
    visit.go("/usage?by=version")
    drawn(page)
    expect(page.locator('[data-plot="tokens"] .bars .point').first).to_be_attached()
    assert page.evaluate(OVERFLOW) <= 0
    assert visit.complaints == []
    open_ = visitor.visit(width=width, language=language, theme=theme, bypass_csp=True)
    for path in (MODEL, "/usage"):
        page = open_.go(path)
        drawn(page)
        found = Axe().run(page, options=WCAG).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []


def test_table_file_and_picture_come_from_the_same_numbers(
    visitor: Visitor, tmp_path: Path
) -> None:
    fill()
    visit = visitor.visit()
    page = visit.go(f"{MODEL}?range=24h")
    drawn(page)
    plot = page.locator('[data-plot="traffic"]')
    button = plot.get_by_role("button", name="As table")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    rows = plot.locator("tbody tr")
    table = [
        [cell.replace(",", "").replace("–", "") for cell in row.split("\t")]
        for row in rows.evaluate_all(
            "rows => rows.map(r => [...r.cells].map(c => c.textContent).join('\\t'))"
        )
    ]
    with page.expect_download() as download:
        plot.get_by_role("link", name="CSV").click()
    download.value.save_as(tmp_path / "file.csv")
    _head, *lines = csv.reader((tmp_path / "file.csv").read_text().splitlines())
    assert table[0][0].endswith("(not over)")
    assert [row[1:] for row in table] == [line[1:] for line in reversed(lines)]
    bars = page.evaluate(
        "document.querySelector('[data-plot=traffic] [data-plot-area]').data[0].y"
    )
    assert [int(line[1]) for line in lines if line[1]] == [
        n for n in bars if n is not None
    ]
    with page.expect_download() as picture:
        plot.get_by_role("button", name="PNG").click()
    picture.value.save_as(tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert picture.value.suggested_filename == "models-qwen3-8b-analysis-traffic.png"
    assert visit.complaints == []


def test_the_colours_follow_the_theme_of_the_system(visitor: Visitor) -> None:
    fill()
    visit = visitor.visit(theme="system")
    page = visit.page
    page.emulate_media(color_scheme="light")
    visit.go(MODEL)
    drawn(page)
    ground = page.locator('[data-plot="traffic"] .main-svg').first
    expect(ground).to_have_css("background-color", "rgb(255, 255, 255)")
    page.emulate_media(color_scheme="dark")
    expect(ground).to_have_css("background-color", "rgb(22, 28, 35)")
    assert visit.complaints == []


def test_a_failure_is_told_and_can_be_tried_again(visitor: Visitor) -> None:
    fill()
    visit = visitor.visit()
    page = visit.page
    page.route("**/analysis.json*", lambda route: route.fulfill(status=500))
    visit.go(MODEL)
    plot = page.locator('[data-plot="ttft"]')
    expect(plot).to_contain_text("The numbers could not be loaded.")
    page.unroute("**/analysis.json*")
    page.route("**/plotly.min.js", lambda route: route.abort())
    plot.get_by_role("button", name="Retry").click()
    drawn(page)
    page.unroute("**/plotly.min.js")
    page.route("**/analysis.json*", lambda route: route.abort())
    visit.go(f"{MODEL}?range=1h")
    expect(plot.get_by_role("button", name="Retry")).to_be_visible()


def test_a_chart_without_numbers_says_so_while_the_library_is_slow(
    visitor: Visitor,
) -> None:
    fleet.fleet_fill()
    found = [outcomes.outcome(time.time() - 70, model="qwen3-8b", version="v1")]
    outcomes.count(found)
    minutes_count(found)
    page = visitor.visit().page
    held: list[Route] = []
    page.route("**/plotly.min.js", lambda route: held.append(route))
    page.goto(visitor.url + MODEL, wait_until="commit")
    state = '[data-plot="{}"] [data-plot-state]'.format
    expect(page.locator(state("traffic"))).to_have_text("Loading…")
    expect(page.locator(state("errors"))).to_have_text("No errors in this range.")
    held[0].continue_()
    drawn(page)
    expect(page.locator(state("traffic"))).to_have_text("")
    expect(page.locator(state("errors"))).to_have_text("No errors in this range.")


def test_without_the_library_the_table_still_has_the_numbers(visitor: Visitor) -> None:
    fill()
    page = visitor.visit().page
    page.route("**/plotly.min.js", lambda route: route.abort())
    page.goto(visitor.url + MODEL)
    plot = page.locator('[data-plot="traffic"]')
    expect(plot).to_contain_text("The chart could not be drawn.")
    plot.get_by_role("button", name="As table").click()
    assert plot.locator("tbody tr").count() >= 24
    page.unroute("**/plotly.min.js")
    plot.get_by_role("button", name="Retry").click()
    drawn(page)
    empty = "/models/bge-m3/analysis"
    page.goto(visitor.url + empty)
    expect(page.locator('[data-plot="errors"]')).to_contain_text("No errors in this")
    expect(page.locator('[data-plot="ttft"]')).to_contain_text("No requests in this")
