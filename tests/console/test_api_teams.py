"""Teams and keys through the API."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext

from cluster import feed
from routing.contracts.keys import key_decode, key_matches
from routing.models import ApiKey, Team
from tests.console.api import Api, read, refusal

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = "/teams/search/keys"


@pytest.fixture
def api(valkey: redis.Redis) -> Api:
    """With a team search."""
    api = Api()
    assert api.post("/teams", {"slug": "search"}).status_code == 201
    return api


def entry(valkey: redis.Redis, key_id: str) -> Any:
    """The key as the gateways read it."""
    body = valkey.get(feed.feed_names(feed.KEYS).entry(key_id))
    assert isinstance(body, bytes)
    return key_decode(body)


def test_a_team_is_made_shown_and_listed(api: Api) -> None:
    made = api.post("/teams", {"slug": "ads", "name": "Advertising"})
    assert (made.status_code, made["Location"]) == (201, "/api/v1/teams/ads")
    assert api.get("/teams/ads") == read(made)
    assert [team["slug"] for team in api.get("/teams")["items"]] == ["ads", "search"]
    assert api.get("/teams/search")["name"] == "search"


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"slug": "search"}, "slug", "duplicate"),
        ({"slug": "a b"}, "slug", "bad_name"),
        ({"slug": "x" * 64}, "slug", "too_long"),
        ({"slug": "x", "name": "y" * 101}, "name", "too_long"),
        ({"name": "y"}, "slug", "required"),
        ({"slug": "x", "limit": 1}, "limit", "unknown_field"),
    ],
)
def test_a_wrong_team_is_refused_beside_its_field(
    api: Api, body: Any, field: str, code: str
) -> None:
    assert refusal(api.post("/teams", body))[2] == [(field, code)]
    assert Team.objects.count() == 1


def test_the_secret_of_a_key_is_answered_once_and_lets_its_holder_in(
    api: Api, valkey: redis.Redis
) -> None:
    api.model()
    body = {
        "name": "nightly",
        "models": ["qwen"],
        "scopes": ["choose_version"],
        "expires_at": "2099-01-01T01:00:00+01:00",
    }
    made = api.post(KEYS, body)
    assert made.status_code == 201
    issued = read(made)
    secret = issued.pop("secret")
    assert made["Location"] == f"/api/v1/keys/{issued['id']}"
    assert issued["expires_at"] == "2099-01-01T00:00:00Z"
    assert api.get(f"/keys/{issued['id']}") == issued
    assert api.get(KEYS) == {"items": [issued], "next": None}
    assert key_matches(entry(valkey, issued["id"]), secret)
    assert entry(valkey, issued["id"]).models == ("qwen",)


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({}, "name", "required"),
        ({"name": ""}, "name", "required"),
        ({"name": "x", "models": ["none"]}, "models", "unknown_model"),
        ({"name": "x", "models": "qwen"}, "models", "wrong_type"),
        ({"name": "x", "scopes": ["root"]}, "scopes", "unknown_scope"),
        (
            {"name": "x", "expires_at": "2020-01-01T00:00:00Z"},
            "expires_at",
            "in_the_past",
        ),
        ({"name": "x", "expires_at": "2099-01-01T00:00:00"}, "expires_at", "invalid"),
        ({"name": "x", "expires_at": "soon"}, "expires_at", "invalid"),
        (
            {"name": "x", "expires_at": "9999-12-31T23:59:59-12:00"},
            "expires_at",
            "invalid",
        ),
        ({"name": "x", "secret": "sk-1"}, "secret", "unknown_field"),
    ],
)
def test_a_wrong_key_is_refused_beside_its_field(
    api: Api, body: Any, field: str, code: str
) -> None:
    assert refusal(api.post(KEYS, body))[2] == [(field, code)]
    assert not ApiKey.objects.exists()


def test_a_revoked_key_is_refused_at_the_gateways_for_ever(
    api: Api, valkey: redis.Redis
) -> None:
    key_id = read(api.post(KEYS, {"name": "x"}))["id"]
    assert entry(valkey, key_id).active
    first = read(api.post(f"/keys/{key_id}/revoke"))
    assert first["revoked_at"]
    assert not entry(valkey, key_id).active
    assert read(api.post(f"/keys/{key_id}/revoke")) == first
    assert api.post("/keys/none/revoke").status_code == 404


def test_the_keys_of_a_disabled_team_rest_until_it_is_enabled(
    api: Api, valkey: redis.Redis
) -> None:
    key_id = read(api.post(KEYS, {"name": "x"}))["id"]
    assert read(api.post("/teams/search/disable"))["disabled_at"]
    assert not entry(valkey, key_id).active
    assert read(api.post("/teams/search/enable"))["disabled_at"] is None
    assert entry(valkey, key_id).active
    assert api.post("/teams/none/enable").status_code == 404


def test_keys_are_listed_newest_first_in_pages_that_stay_right(api: Api) -> None:
    ids = [read(api.post(KEYS, {"name": f"k{n}"}))["id"] for n in range(5)]
    first = api.get(f"{KEYS}?limit=2")
    api.post(KEYS, {"name": "newer"})
    second = api.get(f"{KEYS}?limit=2&cursor={first['next']}")
    third = api.get(f"{KEYS}?limit=2&cursor={second['next']}")
    pages = (first, second, third)
    seen = [key["id"] for page in pages for key in page["items"]]
    assert seen == ids[::-1]
    assert third["next"] is None


def test_keys_of_the_same_moment_are_neither_repeated_nor_lost(api: Api) -> None:
    for n in range(5):
        api.post(KEYS, {"name": f"k{n}"})
    newest = ApiKey.objects.first()
    assert newest is not None
    ApiKey.objects.update(created_at=newest.created_at)
    seen: list[str] = []
    path = f"{KEYS}?limit=2"
    while path:
        answer = api.get(path)
        seen += [key["id"] for key in answer["items"]]
        path = answer["next"] and f"{KEYS}?limit=2&cursor={answer['next']}"
    assert seen == sorted(ApiKey.objects.values_list("id", flat=True))


@pytest.mark.parametrize("path", ["/teams", KEYS])
def test_a_list_costs_the_same_queries_for_one_row_and_for_fifty(
    api: Api, path: str
) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            api.get(path)
        return len(queries)

    team = Team.objects.get()
    ApiKey.objects.create(id="first", team=team, name="x")
    one = cost()
    for n in range(50):
        Team.objects.create(slug=f"t{n}", name="x")
        ApiKey.objects.create(id=f"k{n}", team=team, name="x")
    assert cost() == one <= 3
