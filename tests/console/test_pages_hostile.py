"""Hostile text in every field of every form: refused beside it, or shown as text."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from console.bidi import isolated
from routing.services import key_issue, team_create
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

HOSTILE = {
    "markup": "<img src=x onerror=alert(1)>",
    "attribute": "\" autofocus onfocus=alert(1) x='",
    "template": "{{7*7}}{% now 'Y' %}",
    "direction": "\u202egnp.exe",
    "arabic-and-emoji": "\U0001f984 مرحبا",
    "long": "x" * 5000,
    "nul": "a\x00b",
}
FORMS: dict[str, dict[str, str]] = {
    "/new/team": {"slug": "ops", "name": "Ops"},
    "/new/model": {"name": "llama", "kind": "chat", "description": ""},
    "/models/qwen/new-version": {
        "name": "v9",
        "engine": "llamacpp",
        "served_name": "qwen",
        "artifact": "",
        "artifact_sha256": "",
        "params": "",
        "description": "",
    },
    "/new/replica": {"version": "", "address": "http://10.0.0.9:1"},
    "/models/qwen/edit": {"seen": "", "description": "kept"},
    "/models/qwen/delete": {"typed": ""},
    "/models/qwen/traffic": {
        "weight.v1": "60",
        "weight.v2": "40",
        "generation": "1",
        "override": "",
        "reason": "",
    },
    "/models/qwen/history": {"number": "1", "generation": "1"},
    "/teams/search/new-key": {
        "once": "",
        "name": "k",
        "owner": "",
        "tags": "",
        "expiry": "30",
    },
    "/keys/{key}": {
        "seen": "",
        "name": "k",
        "owner": "",
        "tags": "",
        "models": "qwen",
        "expiry": "30",
    },
    "/keys/{key}/revoke": {"typed": ""},
    "/undo": {"token": ""},
}
# Where what was typed is shown afterwards.
PAGES = [
    "/",
    "/teams",
    "/teams/search",
    "/models",
    "/models/qwen",
    "/models/qwen/edit",
    "/replicas",
    "/keys",
    "/keys/{key}",
    "/models/qwen/traffic",
    "/models/qwen/history",
    "/new/replica",
    "/audit",
    "/usage",
]


@pytest.fixture
def key() -> str:
    """Of a key of a team, beside a model with two versions and a replica."""
    fleet.replica_add(fleet.model_add("qwen", "v1", "v2"), "v1", 8001)
    return fleet.team_with_key()[1].id


def hidden(page: Client, address: str, fields: dict[str, str]) -> dict[str, str]:
    """What the form brings along against a second sending and the changes of others."""
    wanted = {"once", "seen"} & fields.keys()
    text = page.get(address).content.decode() if wanted else ""
    return {n: text.partition(f'name="{n}" value="')[2].split('"')[0] for n in wanted}


def shown_safely(text: str) -> bool:
    """No tag and no attribute came of what was typed, and no template was run."""
    return not re.search(r"<img src=x|\" autofocus onfocus=", text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_is_refused_or_shown_as_text(
    page: Client, key: str, kind: str
) -> None:
    for form, fields in FORMS.items():
        address = form.format(key=key)
        for field in fields:
            sent = fields | hidden(page, address, fields) | {field: HOSTILE[kind]}
            answer = page.post(address, sent)
            assert answer.status_code in (200, 302, 404, 409, 422), (address, field)
            assert shown_safely(answer.content.decode()), (address, field)
    for form in PAGES:
        answer = page.get(form.format(key=key))
        assert answer.status_code == 200, form
        assert shown_safely(answer.content.decode()), form


@pytest.mark.parametrize("field", ["slug", "name"])
def test_a_name_that_is_too_long_is_refused_beside_its_field(
    page: Client, field: str
) -> None:
    sent = FORMS["/new/team"] | {field: HOSTILE["long"]}
    answer = page.post("/new/team", sent)
    assert answer.status_code == 422
    assert f'id="id_{field}-error"' in answer.content.decode()


@pytest.mark.parametrize("kind", ["markup", "attribute", "template"])
def test_what_is_taken_is_shown_letter_by_letter(page: Client, kind: str) -> None:
    page.post("/new/team", {"slug": "ops", "name": HOSTILE[kind]})
    assert html.escape(HOSTILE[kind]) in page.get("/teams/ops").content.decode()


@pytest.mark.parametrize("name", ["\u202egnp.exe", "مرحبا 1", "\u2066a\u2069\u2069"])
def test_a_name_that_runs_the_other_way_turns_no_word_around_it(
    page: Client, name: str
) -> None:
    team = team_create(slug="bidi", name=name, actor=fleet.ACTOR)
    key_issue(team=team, name=name, actor=fleet.ACTOR)
    key = team.keys.get()
    kept = isolated(name)
    # It begins and ends the isolation, and nothing inside ends it before.
    assert kept[0] == "\u2068" and kept[-1] == "\u2069" and kept.count("\u2069") == 1
    dialog = page.get("/teams/bidi?confirm=disable").content.decode()
    assert f"Every key of {html.escape(kept)} is refused" in dialog
    asked = page.get(f"/keys/{key.id}?confirm=revoke").content.decode()
    assert f"Revoke the key {html.escape(kept)}" in asked
    assert re.search(r'<input type="text" name="name"[^>]* dir="auto"', asked)


def test_a_plain_name_is_left_alone() -> None:
    assert [isolated(name) for name in ("Ops", "运维", "🦄")] == ["Ops", "运维", "🦄"]
