"""The main job as a person does it: log in, move the slider, and traffic follows."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.product import Product
from tests.e2e.test_demo_traffic import assert_binomial, split

pytestmark = [
    pytest.mark.browser,
    pytest.mark.processes,
    pytest.mark.timeout(300),
]


def test_the_slider_moves_real_traffic_within_two_seconds(
    browser: Browser, demo: Product
) -> None:
    context = browser.new_context(locale="en-US")
    page = context.new_page()
    complaints: list[str] = []
    page.on(
        "console", lambda m: complaints.append(m.text) if m.type == "error" else None
    )
    page.goto(f"{demo.console}/models/smollm2/traffic")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(demo.secret("admin-password"))
    page.get_by_role("button", name="Log in").click()
    applied, took_s = page.locator("#applied"), []
    for percent in (20, 30, 40):
        slider = page.get_by_role("slider", name="Share of v2")
        expect(slider).to_be_enabled()
        slider.focus()
        page.keyboard.press("Shift+ArrowRight")
        began = time.monotonic()
        page.get_by_role("button", name="Apply", exact=True).click()
        expect(page.locator(".undo")).to_contain_text("Saved as generation")
        expect(applied).to_contain_text(f"v2 {percent}\u00a0%", timeout=15_000)
        expect(applied).to_contain_text("Applied by 2 of 2 gateways")
        took_s.append(time.monotonic() - began)
    # A busy machine may hold one of them up.
    assert min(took_s) < 2
    counts = split(demo, 300)
    assert_binomial(counts["v2"], 300, 0.4)
    page.get_by_label("Percent for v2").fill("0")
    page.get_by_role("button", name="Apply", exact=True).click()
    page.get_by_role("button", name="Apply these weights").click()
    expect(applied).to_contain_text("Applied by 2 of 2 gateways")
    expect(applied).to_contain_text("v1 100\u00a0%")
    assert split(demo, 100) == {"v1": 100}
    assert complaints == []
    context.close()
