"""What people do all day, from beginning to end, by mouse and by keyboard alone, in
both languages.

The words are those of the catalogue, so a walk also finds what was not translated.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import pytest
from django.utils.translation import gettext, override
from playwright.sync_api import Locator, Page, expect

from cluster.models import Model
from routing.contracts.keys import key_hash
from routing.models import ApiKey
from routing.selectors import route_view
from routing.services import route_settings_set
from tests import fleet, outcomes
from tests.e2e.browser import Visit, Visitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
    pytest.mark.timeout(300),
]
# More than any page has: who does not get there in so many steps, never does.
_STEPS_MOST = 150
_FOCUSED = "one => one === document.activeElement"


@dataclass
class Hand:
    """One way of using a page. By keyboard, everything is reached with Tab."""

    visit: Visit
    language: str
    by_keyboard: bool

    @property
    def page(self) -> Page:
        return self.visit.page

    def word(self, text: str, **values: object) -> str:
        """A text of the interface as the person reads it."""
        with override(self.language):
            found = gettext(text)
        assert self.language == "en" or found != text, f"not translated: {text}"
        return found % values if values else found

    def named(self, role: str, text: str, **values: object) -> Locator:
        name = self.word(text, **values)
        return self.page.locator("main").get_by_role(role, name=name)  # type: ignore[arg-type]

    def reach(self, target: Locator) -> None:
        """Bring the focus there, as the means of this hand allow."""
        target = target.first
        expect(target).to_be_visible()
        for _step in range(_STEPS_MOST):
            if target.evaluate(_FOCUSED):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"the keyboard does not get to {target}")

    def press(self, target: Locator) -> None:
        if not self.by_keyboard:
            target.first.click()
            return
        self.reach(target)
        tick = target.first.get_attribute("type") == "checkbox"
        self.page.keyboard.press("Space" if tick else "Enter")

    def write(self, target: Locator, text: str) -> None:
        if self.by_keyboard:
            self.reach(target)
        else:
            target.first.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def goes_to(self, ending: str) -> None:
        expect(self.page).to_have_url(re.compile(f"{ending}$"))
        self.page.wait_for_load_state()

    def keeps_focus(self) -> None:
        """Whoever acted on a page still stands somewhere on it."""
        tag = self.page.evaluate("document.activeElement.tagName")
        assert tag != "BODY"


@pytest.fixture(
    params=[
        pytest.param((language, by_keyboard), id=f"{language}-{means}")
        for language in ("en", "zh-hans")
        for by_keyboard, means in ((False, "mouse"), (True, "keyboard"))
    ]
)
def hand(request: pytest.FixtureRequest, visitor: Visitor) -> Hand:
    language, by_keyboard = request.param
    return Hand(visitor.visit(language=language), language, by_keyboard)


def qwen_add() -> Model:
    model = fleet.model_add("qwen", "v1", "v2")
    for number, version in enumerate(("v1", "v2")):
        fleet.replica_add(model, version, 8001 + number)
    fleet.weights_give("qwen", {"v1": 9000, "v2": 1000})
    fleet.gateway_set("g1")
    return model


def shares() -> list[int]:
    return [weight_bp for _version, weight_bp in route_view(model="qwen").weights]


def test_a_share_is_moved_applied_and_taken_back(hand: Hand) -> None:
    qwen_add()
    page = hand.visit.go("/models")
    hand.press(page.locator("main").get_by_role("link", name="qwen", exact=True))
    hand.goes_to("/models/qwen")
    hand.press(hand.named("link", "Traffic"))
    hand.goes_to("/models/qwen/traffic")
    slider = hand.named("slider", "Share of %(name)s", name="v2")
    expect(slider).to_be_enabled()
    if hand.by_keyboard:
        hand.reach(slider)
        for _step in range(5):
            page.keyboard.press("ArrowRight")
    else:
        hand.press(page.locator('[data-version="v2"] [data-step="100"]'))
        hand.write(page.locator('[data-version="v2"] [data-amount]'), "15")
    expect(page.locator('[data-version="v1"] [data-amount]')).to_have_value("85")
    hand.keeps_focus()
    assert shares() == [9000, 1000]
    hand.press(page.locator("[data-apply]"))
    saved = hand.word("Saved as generation %(number)d.", number=3)
    expect(page.locator(".undo")).to_contain_text(saved)
    assert shares() == [8500, 1500]
    fleet.gateway_set("g1")
    expect(page.locator("#applied")).to_contain_text("15\u00a0%")
    hand.press(page.locator(".undo").get_by_role("button"))
    undone = hand.word(
        "Undone: generation %(number)d has the weights from before.", number=4
    )
    expect(page.locator("[data-results]")).to_contain_text(undone)
    assert shares() == [9000, 1000]
    assert hand.visit.complaints == []


def test_an_overview_in_trouble_leads_to_the_cause_in_three_clicks(hand: Hand) -> None:
    fleet.fleet_fill()
    ill = "qwen3-8b-v1-3"
    (found,) = outcomes.keep(
        outcomes.outcome(model="qwen3-8b", replica=ill, version="v1")
    )
    page = hand.visit.go("/")
    needs = page.locator(".needs")
    expect(needs).to_contain_text(hand.word("Down"))
    hand.press(needs.get_by_role("link", name=ill))
    hand.goes_to(f"/replicas/{ill}")
    expect(page.locator(".verdict")).to_contain_text("connect to 10.0.0.5:8003 refused")
    hand.press(hand.named("link", "Its requests"))
    hand.goes_to(f"/requests\\?replica={ill}")
    hand.press(page.locator(f"#q-{found}"))
    hand.goes_to(f"/requests/{found}")
    waterfall = page.locator("main table").first
    expect(waterfall).to_contain_text(hand.word("Not accounted for"))
    assert hand.visit.complaints == []


def test_a_key_is_issued_stored_and_found_again(hand: Hand) -> None:
    fleet.team_with_key("search")
    hand.visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = hand.visit.go("/teams")
    hand.press(page.locator("main").get_by_role("link", name="Search"))
    hand.goes_to("/teams/search")
    hand.press(hand.named("link", "Issue a key"))
    hand.goes_to("/teams/search/new-key")
    hand.write(page.locator("#id_name"), "laptop")
    hand.keeps_focus()
    hand.press(hand.named("button", "Issue the key"))
    copy = page.locator('[data-copy-from="secret"]')
    hand.press(copy)
    expect(copy).to_have_text(hand.word("Copied"))
    hand.keeps_focus()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert key_hash(copied) == ApiKey.objects.get(name="laptop").secret_sha256
    hand.press(page.locator("#stored"))
    hand.press(hand.named("button", "Done"))
    hand.goes_to("/teams/search\\??")
    expect(page.locator("main table")).to_contain_text("laptop")
    expect(page.locator("main")).not_to_contain_text(copied)
    assert hand.visit.complaints == []


def test_a_request_is_found_by_its_id_from_any_page(hand: Hand) -> None:
    fleet.fleet_fill()
    (found,) = outcomes.keep(outcomes.outcome(time.time() - 40 * 86_400))
    page = hand.visit.go("/nodes")
    box = page.locator("#seek")
    if hand.by_keyboard:
        page.keyboard.press("/")
        expect(box).to_be_focused()
    else:
        box.click()
    page.keyboard.insert_text(f" {found}\n" if hand.by_keyboard else found)
    if hand.by_keyboard:
        page.keyboard.press("Enter")
    else:
        page.locator("#seek-hits [role=option]").filter(has_text=found).click()
    hand.goes_to(f"/requests/{found}")
    expect(page.locator("main")).to_contain_text(hand.word("Not accounted for"))
    assert hand.visit.complaints == []


def test_a_setting_is_changed_and_another_admin_loses_nothing(hand: Hand) -> None:
    qwen_add()
    page = hand.visit.go("/models/qwen")
    hand.press(hand.named("link", "Settings"))
    hand.goes_to("/models/qwen/settings")
    hand.write(page.locator("#id_retries"), "2")
    hand.keeps_focus()
    view = route_view(model="qwen")
    route_settings_set(
        route=view.route,
        settings={"retries": 3},
        generation=view.route.generation,
        actor=fleet.ACTOR,
    )
    hand.press(hand.named("button", "Save"))
    conflict = page.locator("main").get_by_role("alert")
    expect(conflict).to_contain_text(
        hand.word("Someone else changed this meanwhile. Nothing of yours is saved yet.")
    )
    row = conflict.get_by_role("row").nth(1)
    expect(row).to_contain_text(hand.word("Retries"))
    assert row.get_by_role("cell").all_inner_texts() == ["2", "3"]
    expect(page.locator("#id_retries")).to_have_value("2")
    assert route_view(model="qwen").settings.retries == 3
    hand.press(hand.named("button", "Save"))
    saved = hand.word("Saved as generation %(number)d.", number=4)
    expect(page.locator(".undo")).to_contain_text(saved)
    assert route_view(model="qwen").settings.retries == 2
    hand.press(page.locator(".undo").get_by_role("button"))
    expect(page.locator("#id_retries")).to_have_value("3")
    # What the browser says of an answer that was a conflict, and nothing else.
    assert len(hand.visit.complaints) == 1 and "409" in hand.visit.complaints[0]


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_a_replica_page_on_a_bad_network_never_shows_old_as_new(
    visitor: Visitor, language: str
) -> None:
    hand = Hand(visitor.visit(language=language), language, by_keyboard=False)
    model = qwen_add()
    replica = model.versions.get(name="v1").replicas.get()
    page = hand.visit.go(f"/replicas/{replica.id}")
    state = page.locator("main [data-freshness]")
    expect(state).to_contain_text(hand.word("Live"))
    page.locator("main h1").click()
    hand.visit.context.set_offline(True)
    expect(state).not_to_contain_text(hand.word("Live"), timeout=40_000)
    told = hand.word("Reconnecting: last heard {n} s ago").partition("{")[0]
    stale = hand.word("Stale: last heard {n} s ago").partition("{")[0]
    expect(state).to_contain_text(re.compile(f"{told}|{stale}"))
    hand.visit.context.set_offline(False)
    expect(state).to_contain_text(hand.word("Live"), timeout=40_000)
