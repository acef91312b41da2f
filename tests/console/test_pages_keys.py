"""The pages of keys: found among all teams, changed, and never lost to a conflict."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from routing.contracts.keys import key_generate
from routing.models import ApiKey, Team
from routing.services import key_issue, key_update
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def team() -> Team:
    return fleet.team_with_key()[0]


@pytest.fixture
def key(team: Team) -> ApiKey:
    return team.keys.get()


def names(page: Client, address: str) -> list[str]:
    return names_in(page.get(address).content.decode())


def names_in(text: str) -> list[str]:
    """The names of the keys that a list shows, in its order."""
    return re.findall(r'<th scope="row"><a href="/keys/\w+">([^<]+)</a>', text)


def form(page: Client, key: ApiKey, **values: object) -> dict[str, object]:
    """What the open form of a key would send."""
    text = page.get(f"/keys/{key.id}").content.decode()
    seen = re.search(r'name="seen" value="([^"]+)"', text)
    assert seen
    sent = {"seen": seen[1], "name": key.name, "owner": key.owner, "expiry": "kept"}
    return {**sent, "tags": ", ".join(key.tags), **values}


def test_without_keys_the_list_says_so_and_leads_to_the_teams(page: Client) -> None:
    text = page.get("/keys").content.decode()
    assert "No key yet" in text and 'role="search"' not in text.split("<main")[1]


def test_the_list_shows_the_keys_of_all_teams_with_what_is_known(
    page: Client, key: ApiKey
) -> None:
    other, _key = fleet.team_with_key("ads")
    key_issue(
        team=other, name="b&b", owner="ada", tags=["a b", "night"], actor=fleet.ACTOR
    )
    ApiKey.objects.filter(pk=key.pk).update(
        last_used_at=timezone.now() - timedelta(hours=3), last_used_from="2001:db8::1"
    )
    text = page.get("/keys").content.decode()
    assert f"sk-{key.id}\u2026{key.last_four}" in text
    assert "from 2001:db8::1" in text and "3 h ago" in text
    assert '<a href="/teams/ads">Ads</a>' in text
    assert '<a href="/keys?q=%23a%20b">a b</a>' in text
    assert "in 89 d" in text and "every model" in text
    assert names(page, "/keys?q=%23a%20b") == ["b&amp;b"]


def test_filters_that_hide_everything_offer_the_way_back(
    page: Client, key: ApiKey
) -> None:
    for address in ("?q=nobody", "?state=revoked", "?team=nope", "?state=nope"):
        text = page.get(f"/keys{address}").content.decode()
        assert "No key fits" in text and "Show all keys" in text
        assert 'role="search"' in text and "No key yet" not in text


def test_the_filters_hold_what_was_chosen(page: Client, key: ApiKey) -> None:
    text = page.get("/keys?q=%22night%22&state=active&team=search").content.decode()
    assert 'name="q" value="&quot;night&quot;"' in text
    assert '<option value="active" selected>' in text
    assert '<option value="search" selected>' in text


def test_a_whole_key_that_is_pasted_is_found_and_its_secret_dropped(
    page: Client, team: Team
) -> None:
    key, text = key_issue(team=team, name="found", actor=fleet.ACTOR)
    done = page.get("/keys", {"q": f" {text} "})
    assert done["Location"] == f"/keys?q=sk-{key.id}"
    assert names(page, done["Location"]) == ["found"]
    assert names(page, f"/keys?q=sk-{key_generate().public_id}") == []


@pytest.mark.parametrize("address", ["/keys?q=bot", "/teams/search?"])
def test_pages_follow_each_other_without_gap_or_repetition(
    page: Client, team: Team, address: str
) -> None:
    team.keys.all().delete()
    now = timezone.now()
    ApiKey.objects.bulk_create(
        ApiKey(id=f"k{n:03}", team=team, name=f"bot {n}", search_text=f"bot {n}")
        for n in range(120)
    )
    # Many of the same moment: the id decides.
    ApiKey.objects.filter(id__lt="k060").update(created_at=now)
    seen: list[str] = []
    sizes = []
    following = address
    while following:
        text = page.get(following).content.decode()
        key_issue(team=team, name="bot newer", actor=fleet.ACTOR)
        found = names_in(text)
        seen += found
        sizes.append(len(found))
        match = re.search(r'rel="next" href="([^"]+)"', text)
        following = address.partition("?")[0] + unescape(match[1]) if match else ""
    assert len(seen) == len(set(seen)) == 120
    assert sizes == [50, 50, 20]
    assert names(page, f"{address}&cursor=junk") == names(page, address)


def test_a_key_is_changed_without_a_new_secret(page: Client, key: ApiKey) -> None:
    fleet.model_add("qwen")
    sent = form(
        page, key, name="renamed", owner="ada", tags="night, , batch", models=["qwen"],
        expiry="0", choose_version="on",
    )  # fmt: skip
    done = page.post(f"/keys/{key.id}", sent)
    assert done["Location"] == f"/keys/{key.id}"
    before = key.secret_sha256
    key.refresh_from_db()
    assert (key.name, key.owner, key.tags) == ("renamed", "ada", ["batch", "night"])
    assert (key.model_names, key.scopes) == (["qwen"], ["choose_version"])
    assert key.expires_at is None and key.secret_sha256 == before
    text = page.get(f"/keys/{key.id}").content.decode()
    assert "the key is the same" in text and "changed the key" in text


def test_a_change_that_says_nothing_of_the_expiry_keeps_it(
    page: Client, key: ApiKey
) -> None:
    page.post(f"/keys/{key.id}", form(page, key, name="renamed"))
    after = ApiKey.objects.get()
    assert (after.name, after.expires_at) == ("renamed", key.expires_at)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": ""}, "required"),
        ({"tags": ",".join(map(str, range(21)))}, "At most 20 tags."),
        ({"tags": "x" * 41}, "At most 40 characters."),
        ({"models": ["nope"]}, "Select a valid choice"),
        ({"expiry": "1"}, "Select a valid choice"),
    ],
)
def test_a_refused_change_keeps_the_input_beside_its_fault(
    page: Client, key: ApiKey, values: dict[str, object], words: str
) -> None:
    response = page.post(
        f"/keys/{key.id}", form(page, key, **({"owner": "kept"} | values))
    )
    text = response.content.decode()
    assert response.status_code == 422
    assert words in text and 'value="kept"' in text
    assert ApiKey.objects.get().owner == ""


def test_a_change_of_another_in_between_is_shown_and_never_lost(
    page: Client, key: ApiKey
) -> None:
    sent = form(page, key, name="mine")
    key_update(key=key, owner="theirs", actor=fleet.ACTOR)
    response = page.post(f"/keys/{key.id}", sent)
    text = response.content.decode()
    assert response.status_code == 409
    assert "Nothing of yours is saved yet" in text
    assert "<dt>Owner</dt><dd>theirs</dd>" in text and 'value="mine"' in text
    assert ApiKey.objects.get().owner == "theirs"
    seen = re.search(r'name="seen" value="([^"]+)"', text)
    assert seen
    again = page.post(f"/keys/{key.id}", {**sent, "seen": seen[1]})
    assert again.status_code == 302
    assert ApiKey.objects.get().name == "mine"


def test_a_use_in_between_is_no_conflict(page: Client, key: ApiKey) -> None:
    sent = form(page, key, name="mine")
    ApiKey.objects.update(last_used_at=timezone.now(), last_used_from="203.0.113.9")
    assert page.post(f"/keys/{key.id}", sent).status_code == 302


def test_a_key_revoked_in_between_stays_as_it_is(page: Client, key: ApiKey) -> None:
    sent = form(page, key, name="mine")
    page.post(f"/keys/{key.id}/revoke")
    response = page.post(f"/keys/{key.id}", sent)
    assert response.status_code == 409
    assert "cannot be changed" in response.content.decode()
    assert ApiKey.objects.get().name == key.name


def test_a_model_that_was_deleted_is_still_a_choice_of_its_key(
    page: Client, key: ApiKey
) -> None:
    ApiKey.objects.update(model_names=["gone"])
    text = page.get(f"/keys/{key.id}").content.decode()
    assert re.search(r'value="gone"[^>]*checked', text)
    assert (
        page.post(f"/keys/{key.id}", form(page, key, models=["gone"])).status_code
        == 302
    )


def test_a_key_that_does_not_exist_is_404(page: Client) -> None:
    assert page.get("/keys/nope").status_code == 404
    assert page.post("/keys/nope", {"name": "x"}).status_code == 404


def test_a_key_that_is_in_use_goes_only_when_its_name_is_typed(
    page: Client, key: ApiKey
) -> None:
    used = timezone.now() - timedelta(hours=3)
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=used)
    asked = page.get(f"/keys/{key.id}?confirm=revoke").content.decode()
    assert "It is in use. Type" in asked and "Requests today" in asked
    answer = page.post(f"/keys/{key.id}/revoke", {"typed": "else"})
    assert answer.status_code == 422 and b"type its name exactly" in answer.content
    assert b'<dialog id="dialog-revoke" aria-labelledby="ask-revoke" open>' in (
        answer.content
    )
    key.refresh_from_db()
    assert key.revoked_at is None
    page.post(f"/keys/{key.id}/revoke", {"typed": key.name})
    key.refresh_from_db()
    assert key.revoked_at is not None
