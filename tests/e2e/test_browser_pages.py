"""Every page in a real Chromium: no complaint, no barrier, no sideways scroll."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from cluster.health import Probe
from routing.models import ApiKey
from tests import fleet
from tests.e2e.browser import OVERFLOW, Visitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
    pytest.mark.timeout(300),
]

PAGES = (
    "/",
    "/models",
    "/models/qwen3-8b",
    "/models/bge-m3",
    "/models/qwen3-8b/new-version",
    "/models/qwen3-8b/traffic",
    "/models/qwen3-8b/settings",
    "/models/qwen3-8b/history?restore=1",
    "/models/qwen3-8b/history?from=1&to=2",
    "/audit",
    "/new/model",
    "/replicas",
    "/replicas?state=draining",
    "/replicas/qwen3-8b-v3-2",
    "/replicas/qwen3-8b-v1-1?confirm=drain",
    "/new/replica",
    "/replicas/qwen3-8b-v2-2",
    "/nodes",
    "/nodes/local",
    "/teams",
    "/teams/search",
    "/teams/search/new-key",
    "/keys",
    "/keys?state=revoked",
    "/keys/KEY",
    "/keys/KEY?confirm=revoke",
    "/new/team",
    "/gateways",
    "/requests",
    "/usage",
    "/models/qwen3-8b/analysis",
    "/models/qwen3-8b/edit",
    "/users",
    "/users/ada",
    "/new/user",
    "/profile",
    "/profile/password",
    "/profile/new-token",
    "/search?q=qwen",
    "/help",
)
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
LONG = "a-very-long-name-that-nobody-can-break-" * 2 + "x"


def with_key(path: str) -> str:
    """Keys have names of their own: the only one there is."""
    return path.replace("KEY", ApiKey.objects.get().pk)


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize(("language", "theme"), [("en", "light"), ("zh-hans", "dark")])
def test_no_page_makes_the_browser_complain_or_shuts_anybody_out(
    visitor: Visitor, width: int, language: str, theme: str
) -> None:
    fleet.fleet_fill()
    strict = visitor.visit(width=width, language=language, theme=theme)
    # The tool puts a script into the page, which the policy rightly refuses.
    open_ = visitor.visit(width=width, language=language, theme=theme, bypass_csp=True)
    for path in map(with_key, PAGES):
        strict.go(path)
        page = open_.go(path)
        found = Axe().run(page, options=WCAG).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], path
    assert strict.complaints == []


def test_the_login_is_clean_and_lets_in(visitor: Visitor) -> None:
    for theme in ("light", "dark"):
        page = visitor.visit(anonymous=True, theme=theme, bypass_csp=True).go("/login")
        found = Axe().run(page, options=WCAG).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
    visit = visitor.visit(anonymous=True)
    page = visit.go("/teams")
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{visitor.url}/teams")
    assert visit.complaints == []


@pytest.mark.parametrize("width", [320, 768, 1100, 2560])
def test_nothing_scrolls_sideways_even_with_long_names(
    visitor: Visitor, width: int
) -> None:
    fleet.fleet_fill()
    model = fleet.model_add(LONG, "v1", f"{LONG}", description=LONG)
    replica = fleet.replica_add(model, "v1", 8001)
    visit = visitor.visit(width=width)
    for path in (
        *map(with_key, PAGES),
        f"/models/{LONG}",
        f"/models/{LONG}/traffic",
        f"/replicas/{replica.id}",
    ):
        page = visit.go(path)
        overflow = page.evaluate(OVERFLOW)
        assert overflow <= 0, path


def test_the_theme_follows_the_choice_without_a_script(visitor: Visitor) -> None:
    page = visitor.visit(theme="dark").go("/")
    dark = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(dark) == "rgb(14, 19, 24)"
    page.get_by_role("button", name="Light").click()
    assert page.evaluate(dark) == "rgb(245, 247, 249)"


def test_the_replica_list_follows_the_state_and_tells_when_it_cannot(
    visitor: Visitor,
) -> None:
    model = fleet.model_add("qwen", "v1")
    replica = fleet.replica_add(model, "v1", 8001)
    visit = visitor.visit()
    page = visit.go("/replicas")
    expect(page.locator("main tbody")).to_contain_text("Healthy")
    link = page.get_by_role("link", name=replica.id)
    link.focus()
    fleet.probe_write(replica, Probe.DOWN, "connection refused")
    expect(page.locator("main tbody")).to_contain_text(
        "connection refused", timeout=15_000
    )
    assert page.evaluate("document.activeElement.textContent") == replica.id
    pill = page.locator("[data-freshness]")
    expect(pill).to_contain_text("Live")
    page.route("**/replicas", lambda route: route.abort())
    fleet.probe_write(replica, Probe.DOWN, "no route to host")
    expect(pill).to_contain_text("Stale: last heard", timeout=20_000)
    expect(page.locator("main tbody")).to_contain_text("connection refused")
    page.unroute("**/replicas")
    expect(pill).to_contain_text("Live", timeout=20_000)
    expect(page.locator("main tbody")).to_contain_text("no route to host")


def test_a_disturbing_action_asks_with_the_focus_on_cancel(visitor: Visitor) -> None:
    model = fleet.model_add("qwen", "v1")
    replica = fleet.replica_add(model, "v1", 8001)
    page = visitor.visit().go(f"/replicas/{replica.id}")
    page.get_by_role("button", name="Drain…").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("v1 gets 100")
    assert page.evaluate("document.activeElement.textContent") == "Cancel"
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    replica.refresh_from_db()
    assert replica.admin_state == "enabled"
    page.get_by_role("button", name="Drain…").click()
    dialog.get_by_role("button", name=f"Drain {replica.id}").click()
    expect(page.locator(".undo")).to_contain_text("is draining")
    expect(page.locator("#replica-state")).to_contain_text("Draining")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#replica-state")).to_contain_text("Healthy")
