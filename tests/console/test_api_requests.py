"""Requests and usage through the API."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import pytest

from routing.contracts.outcome import Ending
from routing.models import OutcomeRecord
from routing.selectors import outcomes as selector
from tests import outcomes
from tests.console.api import Api, read, refusal

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

DAY_S = 86_400
# 2027-01-15 08:00 UTC.
START = 1_800_000_000.0


@pytest.fixture
def api() -> Api:
    return Api()


def walk(api: Api, path: str) -> list[dict[str, Any]]:
    """Every item over all pages."""
    items: list[dict[str, Any]] = []
    answer = api.get(path)
    while True:
        items += answer["items"]
        if answer["next"] is None:
            return items
        join = "&" if "?" in path else "?"
        answer = api.get(f"{path}{join}cursor={quote(answer['next'])}")


def test_requests_are_listed_newest_first_in_pages(api: Api) -> None:
    made = outcomes.keep(*(outcomes.outcome(START + n) for n in range(7)))
    found = walk(api, "/requests?limit=3")
    assert [one["id"] for one in found] == made[::-1]
    first = found[0]
    assert first["at"] == "2027-01-15T08:00:06Z"
    assert (first["ending"], first["status"], first["attempts"]) == (
        "completed",
        200,
        2,
    )
    assert (first["prompt_tokens"], first["first_content_ms"]) == (100, 210.0)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("team=search", 3),
        ("status=5xx", 1),
        ("status=502", 1),
        ("status=404", 0),
        ("ending=upstream_failed&model=qwen", 1),
        ("slow=true", 1),
        ("since=2027-01-15T08:00:01Z", 3),
        ("until=2027-01-15T09:00:01%2B01:00", 1),
        ("since=2027-01-15T08:00:01Z&until=2027-01-15T08:00:02Z", 1),
        ("version=v1&replica=qwen-v1-1&key=k1", 3),
    ],
)
def test_filters_choose(api: Api, query: str, count: int) -> None:
    failed = {"status": 502, "ending": Ending.UPSTREAM_FAILED}
    outcomes.keep(
        outcomes.outcome(START),
        outcomes.outcome(START + 1, **failed),
        outcomes.refused(START + 2),
    )
    outcomes.keep(outcomes.outcome(START + 3), slow=True)
    assert len(walk(api, f"/requests?{query}&limit=2")) == count


def test_a_search_that_ends_early_says_so_and_goes_on(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selector, "_CHUNK_FIRST", 4)
    monkeypatch.setattr(selector, "SEARCH_S", -1.0)
    made = outcomes.keep(
        outcomes.outcome(START, version="v9"),
        *(outcomes.outcome(START + n) for n in range(1, 9)),
    )
    answer = api.get("/requests?version=v9")
    assert answer["items"] == [] and answer["next"]
    assert answer["searched_to"] == "2027-01-15T08:00:05Z"
    assert [one["id"] for one in walk(api, "/requests?version=v9")] == [made[0]]


def test_one_request_is_told_whole(api: Api) -> None:
    (one,) = outcomes.keep(outcomes.outcome(START))
    whole = api.get(f"/requests/{one}")
    assert whole["id"] == one and whole["verdict"].startswith("Completed after 1.25")
    assert whole["phases"][0]["start_ms"] == 0.0
    assert whole["phases"][-1]["end_ms"] == whole["duration_ms"] == 1250.0
    assert whole["outcome"]["attempts"][0]["error"] == "connect"
    assert whole["outcome"]["attempts"][1]["choice"]["why"] == "only"
    OutcomeRecord.objects.update(body=b"[]")
    assert api.get(f"/requests/{one}")["outcome"] is None


def test_a_request_that_is_not_there_says_what_is_known(api: Api) -> None:
    outcomes.keep(outcomes.outcome(time.time()))
    response = api.call("get", f"/requests/{outcomes.request_id(1.0)}")
    assert response.status_code == 404
    assert "older than everything that is kept" in read(response)["detail"]
    assert api.call("get", "/requests/nonsense").status_code == 404


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=abc", "status"),
        ("status=999", "status"),
        ("ending=odd", "ending"),
        ("since=yesterday", "since"),
        ("since=2027-01-15T08:00:00", "since"),
        ("until=9999-12-31T23:59:59-14:00", "until"),
        ("since=0001-01-01T00:00:00%2B14:00", "since"),
        ("slow=maybe", "slow"),
        ("team=%00", "team"),
        ("replica=" + "x" * 221, "replica"),
        ("limit=0", "limit"),
        ("cursor=made-up", "cursor"),
        ("colour=blue", "colour"),
    ],
)
def test_a_wrong_filter_is_refused_beside_its_name(
    api: Api, query: str, field: str
) -> None:
    status, _code, fields = refusal(api.call("get", f"/requests?{query}"))
    assert status == 422 and [name for name, _ in fields] == [field]


def test_usage_is_grouped_and_paged_and_adds_up(api: Api) -> None:
    made = [
        outcomes.outcome(
            START + n * DAY_S / 5,
            duration_ms=0.0,
            team=["search", "ads"][n % 2],
            key=f"k{n % 3}",
            prompt_tokens=n,
        )
        for n in range(30)
    ]
    outcomes.count(made)
    path = "/usage?from=2027-01-01&to=2027-01-31"
    for group in ("day", "team", "team,key", "day,team,key,model,version", "key,day"):
        items = walk(api, f"{path}&group={group}&limit=3")
        assert sum(item["requests"] for item in items) == 30
        assert sum(item["prompt_tokens"] for item in items) == sum(range(30))
        named = group.split(",")
        keys = [tuple(item[name] for name in named) for item in items]
        assert len(set(keys)) == len(keys)
        rest = {"day", "team", "key", "model", "version"} - set(named)
        assert all(item[name] is None for item in items for name in rest)
    ads = walk(api, f"{path}&group=day&team=ads")
    assert sum(item["requests"] for item in ads) == 15
    assert api.get(path)["zone"] == "UTC"


def test_usage_is_of_the_last_thirty_days_unless_asked_otherwise(api: Api) -> None:
    now = time.time()
    outcomes.count(
        outcomes.outcome(now - days * DAY_S, duration_ms=0.0) for days in (0, 29, 31)
    )
    assert sum(item["requests"] for item in walk(api, "/usage")) == 2
    assert walk(api, "/usage?from=0001-01-01&to=0001-01-02") == []
    assert len(walk(api, "/usage?from=0001-01-01&to=9999-12-31")) == 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("group=", "group"),
        ("group=colour", "group"),
        ("group=day,day,x", "group"),
        ("from=2027-02-01&to=2027-01-01", "from"),
        ("from=x", "from"),
        ("to=2027-13-01", "to"),
        ("team=%00", "team"),
        ("by=day", "by"),
    ],
)
def test_a_wrong_question_about_usage_is_refused_beside_its_name(
    api: Api, query: str, field: str
) -> None:
    status, _code, fields = refusal(api.call("get", f"/usage?{query}"))
    assert status == 422 and [name for name, _ in fields] == [field]
