"""Issuing a key: shown once, copied truthfully."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from routing.contracts.keys import key_hash
from routing.models import ApiKey
from tests import fleet
from tests.e2e.browser import Visit, Visitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


def issue(visit: Visit) -> Page:
    page = visit.go("/teams/search/new-key")
    page.get_by_label("Name", exact=True).fill("laptop")
    page.get_by_role("button", name="Issue the key").click()
    expect(page.locator("h1")).to_have_text("The new key")
    return page


@pytest.fixture
def visit(visitor: Visitor) -> Visit:
    fleet.team_with_key()
    return visitor.visit()


def test_a_key_is_copied_and_its_hash_is_what_is_stored(visit: Visit) -> None:
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = issue(visit)
    button = page.locator('[data-copy-from="secret"]')
    button.click()
    expect(button).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert key_hash(copied) == ApiKey.objects.get(name="laptop").secret_sha256
    assert visit.complaints == []


def test_without_a_clipboard_the_old_way_is_used(visit: Visit) -> None:
    """As on plain http in a local network."""
    visit.page.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    )
    page = issue(visit)
    button = page.locator('[data-copy-from="secret"]')
    button.click()
    expect(button).to_have_text("Copied")
    page.get_by_label("I stored it").check()
    page.goto(f"{visit.base_url}/new/team")
    page.get_by_label("Full name").focus()
    page.keyboard.press("Control+V")
    pasted = page.get_by_label("Full name").input_value()
    assert key_hash(pasted) == ApiKey.objects.get(name="laptop").secret_sha256


def test_when_nothing_can_copy_the_button_says_so_and_selects_the_text(
    visit: Visit,
) -> None:
    visit.page.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', {value: undefined});"
        "document.execCommand = () => false"
    )
    page = issue(visit)
    button = page.locator('[data-copy-from="secret"]')
    button.click()
    expect(button).to_contain_text("Not copied")
    selected = page.evaluate(
        "(f => f.value.slice(f.selectionStart, f.selectionEnd))"
        "(document.getElementById('secret'))"
    )
    assert key_hash(selected) == ApiKey.objects.get(name="laptop").secret_sha256


def test_leaving_asks_until_the_key_was_stored(visit: Visit) -> None:
    page = issue(visit)
    asked: list[str] = []

    def stay(dialog: object) -> None:
        asked.append(dialog.type)  # type: ignore[attr-defined]
        dialog.dismiss()  # type: ignore[attr-defined]

    page.on("dialog", stay)
    page.get_by_role("link", name="Gateways").click()
    page.wait_for_function("() => true")
    assert asked == ["beforeunload"]
    expect(page.locator("h1")).to_have_text("The new key")
    page.get_by_label("I stored it").check()
    page.get_by_role("button", name="Done").click()
    expect(page).to_have_url(f"{visit.base_url}/teams/search?")
    assert "laptop" in page.locator("tbody").inner_text()
