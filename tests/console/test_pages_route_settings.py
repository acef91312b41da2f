"""The settings of a route as a form: a generation, or a word beside the field."""

from __future__ import annotations

import time

import pytest
from django.test import Client

from console.accounts.models import User
from routing.contracts.route import HashOn, Strategy
from routing.models import Generation
from routing.selectors.routes import route_view
from routing.services import route_settings_set
from tests import fleet, outcomes

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]
ADDRESS = "/models/qwen/settings"
FORM = {
    "strategy": "power_of_two",
    "hash_on": "key",
    "hash_header": "",
    "retries": "2",
    "max_tokens": "4096",
    "timeouts.connect_s": "3",
    "timeouts.first_content_s": "60",
    "timeouts.idle_s": "30.5",
    "timeouts.total_s": "300",
    "generation": "1",
}


def test_a_setting_is_saved_as_a_generation_and_can_be_taken_back(page: Client) -> None:
    fleet.model_add("qwen", "v1")
    assert "By default 120 s." in page.get(ADDRESS).content.decode()
    answer = page.post(ADDRESS, FORM)
    assert answer.status_code == 302 and answer["Location"] == ADDRESS
    view = route_view(model="qwen")
    assert view.route.generation == 2 and view.settings.retries == 2
    assert view.settings.timeouts.idle_s == 30.5
    assert view.settings.max_tokens == 4096
    shown = page.get(ADDRESS)
    assert 'value="30.5"' in shown.content.decode()
    offer = shown.context["undo_offer"]()
    assert page.post("/undo", {"token": offer.token})["Location"] == ADDRESS
    back = route_view(model="qwen")
    assert back.route.generation == 3 and back.settings.retries == 1
    assert [weight for _version, weight in back.weights] == [10_000]


def test_the_strategy_and_what_belongs_together_are_saved(page: Client) -> None:
    fleet.model_add("qwen", "v1")
    hashed = {"strategy": "consistent_hash", "hash_on": "header"}
    answer = page.post(ADDRESS, FORM | hashed)
    assert answer.status_code == 422
    assert answer.context["form"].errors["hash_header"] == ["Which header is it?"]
    page.post(ADDRESS, FORM | hashed | {"hash_header": "X-Session-Id"})
    settings = route_view(model="qwen").settings
    assert settings.strategy is Strategy.CONSISTENT_HASH
    assert settings.hash_on is HashOn.HEADER
    assert settings.hash_header == "X-Session-Id"


def test_the_same_settings_make_no_generation(page: Client) -> None:
    fleet.model_add("qwen", "v1")
    page.post(ADDRESS, FORM)
    page.post(ADDRESS, FORM | {"generation": "2", "timeouts.connect_s": "3.0"})
    assert route_view(model="qwen").route.generation == 2


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("timeouts.connect_s", "0", "0.1"),
        ("timeouts.connect_s", "nan", "Enter a number"),
        ("timeouts.total_s", "1e9", "86400"),
        ("timeouts.idle_s", "301", "longer than the total time"),
        ("retries", "4", "3"),
        ("max_tokens", "-1", "0"),
        ("retries", "1.5", "whole number"),
        ("strategy", "luck", "luck"),
        ("hash_header", "a b", "letters, digits and hyphens"),
        ("timeouts.first_content_s", "", "required"),
    ],
)
def test_what_does_not_fit_is_refused_beside_its_field(
    page: Client, field: str, value: str, words: str
) -> None:
    fleet.model_add("qwen", "v1")
    answer = page.post(ADDRESS, FORM | {field: value})
    assert answer.status_code == 422
    assert words in str(answer.context["form"].errors[field])
    assert route_view(model="qwen").route.generation == 1
    # Nothing that was typed is lost.
    assert 'value="30.5"' in answer.content.decode() or field == "timeouts.idle_s"


def test_another_change_meanwhile_shows_both_and_saves_neither(page: Client) -> None:
    fleet.model_add("qwen", "v1")
    view = route_view(model="qwen")
    route_settings_set(
        route=view.route, settings={"retries": 3}, generation=1, actor=fleet.ACTOR
    )
    answer = page.post(ADDRESS, FORM)
    assert answer.status_code == 409
    rows = {row.label: (row.yours, row.theirs) for row in answer.context["theirs"]}
    assert rows["Retries"] == ("2", "3") and rows["Connect (s)"] == ("3", "5")
    assert "Choice of the replica" not in rows
    assert route_view(model="qwen").settings.retries == 3
    # The form now carries the generation that was shown, so the second press counts.
    assert 'name="generation" value="2"' in answer.content.decode()
    assert page.post(ADDRESS, FORM | {"generation": "2"}).status_code == 302
    assert route_view(model="qwen").settings.retries == 2


def test_a_model_without_a_version_has_no_settings_yet(page: Client) -> None:
    fleet.model_add("qwen")
    assert "No version yet" in page.get(ADDRESS).content.decode()
    answer = page.post(ADDRESS, FORM | {"generation": "0"})
    assert answer.status_code == 422 and not Generation.objects.exists()
    assert page.get("/models/nobody/settings").status_code == 404


def test_a_viewer_sees_the_settings_and_why_they_stay(user: User, page: Client) -> None:
    fleet.model_add("qwen", "v1")
    User.objects.filter(pk=user.pk).update(role="viewer")
    text = page.get(ADDRESS).content.decode()
    assert 'aria-disabled="true"' in text and 'type="submit">Save' not in text
    assert page.post(ADDRESS, FORM).status_code == 403
    assert route_view(model="qwen").route.generation == 1


def test_the_model_page_says_who_uses_it(page: Client) -> None:
    fleet.model_add("qwen", "v1")
    assert "Nobody in the last 30 days." in page.get("/models/qwen").content.decode()
    for number in range(7):
        one = outcomes.outcome(time.time(), model="qwen", team=f"team-{number}")
        outcomes.count([one] * (10 + number))
    context = page.get("/models/qwen").context
    assert [row.of["team"] for row in context["users"]][:2] == ["team-6", "team-5"]
    assert context["users_more"] == 2
