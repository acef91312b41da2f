"""Issuing a key: shown once, copied truthfully."""

from __future__ import annotations

import re

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
    # The copy button works from then on.
    page.wait_for_load_state()
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


@pytest.mark.parametrize(
    ("clipboard", "fallback"),
    [
        # The browser refuses the write.
        ("{writeText: () => Promise.reject(new DOMException('no'))}", "false"),
        # It says that it wrote, and holds something else.
        (
            "{writeText: () => Promise.resolve(), readText: () => "
            "Promise.resolve('else')}",
            "false",
        ),
    ],
)
def test_a_clipboard_that_is_denied_or_lies_is_never_called_copied(
    visit: Visit, clipboard: str, fallback: str
) -> None:
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.page.add_init_script(
        f"Object.defineProperty(navigator, 'clipboard', {{value: {clipboard}}});"
        f"document.execCommand = () => {fallback}"
    )
    page = issue(visit)
    button = page.locator('[data-copy-from="secret"]')
    button.click()
    expect(button).to_contain_text("Not copied")
    selected = page.evaluate("getSelection().toString()")
    assert key_hash(selected) == ApiKey.objects.get(name="laptop").secret_sha256


def test_a_denied_permission_falls_back_to_a_copy_that_can_be_pasted(
    visit: Visit,
) -> None:
    session = visit.context.new_cdp_session(visit.page)
    for name in ("clipboard-read", "clipboard-write"):
        permission = {"name": name}
        session.send(
            "Browser.setPermission", {"permission": permission, "setting": "denied"}
        )
    page = issue(visit)
    button = page.locator('[data-copy-from="secret"]')
    button.click()
    expect(button).not_to_have_text("Copy")
    if button.inner_text() != "Copied":
        expect(button).to_contain_text("Not copied")
        return
    page.get_by_label("I stored it").check()
    page.goto(f"{visit.base_url}/new/team")
    page.get_by_label("Full name").focus()
    page.keyboard.press("Control+V")
    pasted = page.get_by_label("Full name").input_value()
    assert key_hash(pasted) == ApiKey.objects.get(name="laptop").secret_sha256


def test_a_key_is_found_and_revoked_with_the_keyboard_alone(visit: Visit) -> None:
    page = visit.go("/keys")
    page.locator("main").get_by_role("searchbox").focus()
    page.keyboard.type("nightly")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/keys\?q=nightly"))
    page.get_by_role("link", name="Revoke… nightly-report").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Last used")
    dialog.get_by_role("button", name="Revoke the key").press("Enter")
    expect(page.locator("[data-results]")).to_contain_text("is refused from now on")
    assert ApiKey.objects.get().revoked_at
    assert visit.complaints == []


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
    assert "laptop" in page.locator("main tbody").inner_text()
