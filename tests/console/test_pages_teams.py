from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from console.key_mark import key_mark
from routing.contracts.keys import key_hash
from routing.models import ApiKey, Team
from routing.services import key_issue
from tests import fleet, outcomes

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

KEY = re.compile(r"sk-[a-z0-9]{48}")


def key_form(page: Client, **values: object) -> dict[str, object]:
    """The values that the open form would send, with its token."""
    text = page.get("/teams/search/new-key").content.decode()
    token = re.search(r'name="once" value="([^"]+)"', text)
    assert token
    return {"once": token[1], "name": "bot", "expiry": "90", **values}


@pytest.fixture
def team() -> Team:
    return fleet.team_with_key()[0]


def test_a_team_is_created_by_its_short_name(page: Client) -> None:
    done = page.post("/new/team", {"slug": "search", "name": "Search & more"})
    assert done["Location"] == "/teams/search"
    text = page.get("/teams/search").content.decode()
    assert "Search &amp; more" in text and "No key yet" in text


@pytest.mark.parametrize("slug", ["search", "has space", ""])
def test_a_refused_team_keeps_the_input(page: Client, team: Team, slug: str) -> None:
    response = page.post("/new/team", {"slug": slug, "name": "kept"})
    assert response.status_code == 422
    assert 'value="kept"' in response.content.decode()
    assert Team.objects.count() == 1


def test_a_key_is_shown_once_and_stored_as_a_hash_only(
    page: Client, team: Team
) -> None:
    response = page.post("/teams/search/new-key", key_form(page))
    text = response.content.decode()
    secret = KEY.search(text)
    assert secret and response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    key = ApiKey.objects.get(name="bot")
    assert key.secret_sha256 == key_hash(secret[0])
    assert key.expires_at
    assert timedelta(89) < key.expires_at - timezone.now() < timedelta(91)
    for address in ("/teams/search", "/teams", "/"):
        assert not KEY.search(page.get(address).content.decode())
    assert secret[0] not in str(dict(page.session))
    lines = response.context["env"].splitlines()
    assert lines == [
        "OPENAI_BASE_URL=http://127.0.0.1:8080/v1",
        f"OPENAI_API_KEY={secret[0]}",
        f"SLUICE_KEY={secret[0]}",
    ]


def test_sending_the_form_again_issues_no_second_key(page: Client, team: Team) -> None:
    form = key_form(page)
    page.post("/teams/search/new-key", form)
    again = page.post("/teams/search/new-key", form)
    assert again["Location"] == "/teams/search"
    assert ApiKey.objects.filter(name="bot").count() == 1
    assert "No second key was issued" in page.get("/teams/search").content.decode()


def test_models_scope_and_expiry_of_a_key_are_what_was_chosen(
    page: Client, team: Team
) -> None:
    fleet.model_add("qwen")
    form = key_form(page, models=["qwen"], expiry="0", choose_version="on")
    page.post("/teams/search/new-key", form)
    key = ApiKey.objects.get(name="bot")
    assert (key.model_names, key.scopes) == (["qwen"], ["choose_version"])
    assert key.expires_at is None
    text = page.get("/teams/search").content.decode()
    assert f"sk-{key.id}\u2026{key.last_four}" in text and "choose_version" in text


@pytest.mark.parametrize(
    "values", [{"name": ""}, {"models": ["nope"]}, {"expiry": "12345"}]
)
def test_a_refused_key_issues_nothing(
    page: Client, team: Team, values: dict[str, object]
) -> None:
    form = key_form(page, **values)
    response = page.post("/teams/search/new-key", form)
    assert response.status_code == 422
    assert ApiKey.objects.count() == 1


def test_a_key_is_revoked_after_a_question_that_says_when_it_was_used(
    page: Client, team: Team
) -> None:
    key = team.keys.get()
    used = {"last_used_at": timezone.now(), "last_used_from": "203.0.113.9"}
    ApiKey.objects.filter(pk=key.pk).update(**used)
    text = page.get(f"/keys/{key.id}?confirm=revoke").content.decode()
    dialog = text.partition('<dialog id="dialog-revoke"')[2]
    assert dialog.startswith(' aria-labelledby="ask-revoke" open')
    assert "from 203.0.113.9" in dialog and "<time" in dialog
    done = page.post(f"/keys/{key.id}/revoke", {"typed": key.name})
    key.refresh_from_db()
    assert key.revoked_at
    text = page.get(done["Location"]).content.decode()
    assert "is refused from now on" in text and ">Revoked<" in text
    assert "dialog-revoke" not in text and "cannot be changed" in text


def test_a_team_is_disabled_and_enabled(page: Client, team: Team) -> None:
    outcomes.count([outcomes.outcome(time.time(), team="search") for _n in range(3)])
    asked = page.get("/teams/search?confirm=disable").content.decode()
    assert "The team made 3 requests today." in asked
    assert "1 key stops working." in asked
    page.post("/teams/search/disable")
    text = page.get("/teams/search").content.decode()
    assert "none of its keys works" in text and "Team disabled" in text
    page.post("/teams/search/enable")
    team.refresh_from_db()
    assert team.disabled_at is None


def test_unknown_verbs_and_keys_are_404(page: Client, team: Team) -> None:
    assert page.post("/teams/search/explode").status_code == 404
    assert page.post("/keys/nope/revoke").status_code == 404


@pytest.mark.parametrize(
    ("days", "word"),
    [(-1, "Expired"), (3, "Expires soon"), (60, "Active"), (None, "Active")],
)
def test_the_mark_of_a_key_follows_its_expiry(
    team: Team, days: int | None, word: str
) -> None:
    key, now = team.keys.select_related("team").get(), timezone.now()
    key.expires_at = None if days is None else now + timedelta(days)
    assert key_mark(key, now).word == word


def test_the_list_counts_keys_that_still_work(page: Client, team: Team) -> None:
    key_issue(team=team, name="gone", actor=fleet.ACTOR)
    ApiKey.objects.filter(name="gone").update(revoked_at=timezone.now())
    assert "<b>1</b>" in page.get("/teams").content.decode()
