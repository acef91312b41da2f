"""Teams and keys through the API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from django.db import connection
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

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
        "owner": "ada",
        "tags": ["night", "batch"],
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
    assert (issued["owner"], issued["tags"]) == ("ada", ["batch", "night"])
    assert (issued["last_used_at"], issued["last_used_from"]) == (None, "")
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
        ({"name": "x", "owner": "y" * 101}, "owner", "too_long"),
        ({"name": "x", "tags": [str(n) for n in range(21)]}, "tags", "too_many"),
        ({"name": "x", "tags": ["y" * 41]}, "tags", "too_long"),
        ({"name": "x", "tags": "y"}, "tags", "wrong_type"),
    ],
)
def test_a_wrong_key_is_refused_beside_its_field(
    api: Api, body: Any, field: str, code: str
) -> None:
    assert refusal(api.post(KEYS, body))[2] == [(field, code)]
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize(("body", "days"), [({}, 90), ({"expires_at": None}, None)])
def test_an_expiry_left_out_is_in_90_days_and_null_is_never(
    api: Api, body: Any, days: int | None
) -> None:
    made = read(api.post(KEYS, {"name": "x"} | body))
    if days is None:
        assert made["expires_at"] is None
        return
    left = datetime.fromisoformat(made["expires_at"]) - timezone.now()
    assert timedelta(days - 0.1) < left <= timedelta(days)


def test_a_key_is_changed_by_whoever_saw_it_and_only_where_it_says_so(
    api: Api, valkey: redis.Redis
) -> None:
    api.model()
    issued = read(api.post(KEYS, {"name": "x", "tags": ["a"]}))
    path = f"/keys/{issued['id']}"
    seen = api.call("get", path)["ETag"]
    assert refusal(api.patch(path, {"name": "y"}))[:2] == (428, "precondition_required")
    change = {"name": "y", "models": ["qwen"], "expires_at": None}
    changed = api.patch(path, change, if_match=seen)
    assert changed.status_code == 200
    assert read(changed) == issued_without_secret(issued) | change
    assert entry(valkey, issued["id"]).models == ("qwen",)
    stale = api.patch(path, {"name": "z"}, if_match=seen)
    assert stale.status_code == 409 and read(stale)["current"]
    assert f'"{read(stale)["current"]}"' == changed["ETag"] == etag(api, path)
    wrong = api.patch(path, {"tags": ["a,b"]}, if_match=changed["ETag"])
    assert refusal(wrong)[2] == [("tags", "invalid")]
    api.post(f"{path}/revoke")
    late = api.patch(path, {"name": "z"}, if_match=etag(api, path))
    assert refusal(late)[:2] == (422, "revoked")


def etag(api: Api, path: str) -> str:
    return str(api.call("get", path)["ETag"])


def issued_without_secret(issued: Any) -> Any:
    return {name: value for name, value in issued.items() if name != "secret"}


def test_of_two_changes_at_once_one_wins_and_the_other_is_told(api: Api) -> None:
    path = f"/keys/{read(api.post(KEYS, {'name': 'x'}))['id']}"
    seen = etag(api, path)

    def rename(name: str) -> HttpResponse:
        try:
            return Api().patch(path, {"name": name}, if_match=seen)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(rename, ("one", "two")))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    (winner,) = (
        read(answer)["name"] for answer in answers if answer.status_code == 200
    )
    assert api.get(path)["name"] == winner


def test_the_keys_of_all_teams_are_found_by_text_state_and_team(api: Api) -> None:
    api.post("/teams", {"slug": "ads", "name": "Advertising"})
    now = timezone.now()
    bodies: dict[str, Any] = {
        "plain": {"owner": "ada", "tags": ["night"]},
        "soon": {"expires_at": (now + timedelta(days=3)).isoformat()},
        "never": {"expires_at": None},
    }
    ids = {
        name: read(api.post(KEYS, {"name": name} | body))["id"]
        for name, body in bodies.items()
    }
    ids["other"] = read(api.post("/teams/ads/keys", {"name": "other"}))["id"]
    api.post(f"/keys/{ids['never']}/revoke")
    ApiKey.objects.filter(name="other").update(
        last_used_at=now, expires_at=now - timedelta(days=1)
    )
    four = ApiKey.objects.get(name="plain").last_four
    found = {
        "q=ADA": ["plain"],
        "q=%23night": ["plain"],
        f"q=sk-{ids['soon'][:5]}": ["soon"],
        f"q={four}": ["plain"],
        "q=advert": ["other"],
        "q=ads": ["other"],
        "q=plain+ada": ["plain"],
        "q=plain+nobody": [],
        "q=%25": [],
        "q=a%00b": [],
        "team=ads": ["other"],
        "state=active": ["soon", "plain"],
        "state=expiring": ["soon"],
        "state=expired": ["other"],
        "state=revoked": ["never"],
        "state=unused": ["never", "soon", "plain"],
        "state=unused&team=ads": [],
    }
    for query, names in found.items():
        items = api.get(f"/keys?{query}")["items"]
        assert [item["name"] for item in items] == names, query
    api.post("/teams/search/disable")
    assert api.get("/keys?state=active")["items"] == []
    assert refusal(api.call("get", "/keys?state=none"))[0] == 422
    assert refusal(api.call("get", "/keys?colour=red"))[2] == [
        ("colour", "unknown_field")
    ]
    assert api.call("get", "/keys?team=none").status_code == 404


def test_a_cursor_continues_the_list_that_it_came_from(api: Api) -> None:
    for number in range(5):
        body = {"name": f"k{number}"}
        if number % 2:
            soon = timezone.now() + timedelta(days=9 - number)
            body["expires_at"] = soon.isoformat()
        api.post(KEYS, body)
    for query in ("", "&q=k", "&state=expiring", "&team=search"):
        every = [item["name"] for item in api.get(f"/keys?limit=9{query}")["items"]]
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            answer = api.get(f"/keys?limit=1{query}{cursor and '&cursor=' + cursor}")
            seen += [item["name"] for item in answer["items"]]
            cursor = answer["next"]
        assert seen == every
        foreign = api.get("/keys?limit=1&state=unused")["next"]
        refused = api.call("get", f"/keys?limit=1{query}&cursor={foreign}")
        assert refusal(refused)[2] == [("cursor", "bad_cursor")]
    every = [item["name"] for item in api.get("/keys?state=expiring")["items"]]
    assert every == ["k3", "k1"]


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


@pytest.mark.parametrize("path", ["/teams", KEYS, "/keys", "/keys?q=x"])
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
    assert cost() == one <= 4
