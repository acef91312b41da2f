"""Routes, weights, revisions and gateways through the API."""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec
import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext

from cluster import live
from routing.contracts import names
from routing.contracts.gateway import GatewayRecord
from routing.models import Generation, Revision
from tests import fleet
from tests.console.api import Api, read, refusal

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

WEIGHTS = "/models/qwen/weights"
ROUTE = "/models/qwen/route"


@pytest.fixture
def api() -> Api:
    """With a model qwen whose version v1 has all the traffic."""
    api = Api()
    api.model()
    return api


def gateway(name: str, revision: int, *, age_s: float = 0.0) -> None:
    """A gateway process that applied a revision of epoch 1."""
    now = time.time()
    record = GatewayRecord(
        id=name,
        host="h",
        pid=7,
        started_at=now - 60,
        epoch=1,
        revision=revision,
        applied_at=now - age_s,
    )
    client = live.redis_client()
    client.set(names.gateway(name), msgspec.json.encode(record))
    client.zadd(names.GATEWAYS, {name: now})
    client.hset(names.acks(1, revision), name, str(now - age_s))


def test_weights_are_set_by_the_generation_in_the_body(api: Api) -> None:
    assert api.get(WEIGHTS) == {
        "generation": 1,
        "wanted": {"v1": 10_000, "v2": 0},
        "applied": {"revision": 3, "gateways": 0, "of": 0},
        "measured": {"n": 0, "shares": {}, "intervals": {}, "requests": {}},
        "check": {
            "result": "nothing_drawn",
            "holds": True,
            "n": 0,
            "drawn": {},
            "chi_square": None,
            "p": None,
            "evidence": 1.0,
            "gateways": [],
        },
    }
    body = {"weights": {"v1": 9000, "v2": 1000}, "generation": 1}
    done = api.put(WEIGHTS, body)
    assert done.status_code == 200
    assert done["ETag"] == '"2"'
    assert read(done) == api.get(WEIGHTS)
    assert read(done)["wanted"] == {"v1": 9000, "v2": 1000}


def test_weights_are_set_by_if_match(api: Api) -> None:
    etag = api.call("get", WEIGHTS)["ETag"]
    assert etag == '"1"'
    done = api.put(WEIGHTS, {"weights": {"v2": 10_000}}, if_match=etag)
    assert read(done)["wanted"] == {"v1": 0, "v2": 10_000}


def test_weights_without_any_generation_are_not_set(api: Api) -> None:
    response = api.put(WEIGHTS, {"weights": {"v2": 10_000}})
    assert refusal(response)[:2] == (428, "precondition_required")
    both = {"weights": {"v2": 10_000}, "generation": 1}
    response = api.put(WEIGHTS, both, if_match='"2"')
    assert refusal(response)[2] == [("generation", "generation_mismatch")]
    for etag in ("*", '"x"', '"1", "2"', '"-1"', '"²"', '"' + "9" * 30 + '"'):
        response = api.put(WEIGHTS, {"weights": {"v2": 10_000}}, if_match=etag)
        assert refusal(response)[2] == [("If-Match", "bad_etag")]
    assert Generation.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"weights": {"v1": 9000, "v2": 999}}, "weights", "bad_sum"),
        ({"weights": {"v1": 10_001, "v2": -1}}, "weights", "bad_weight"),
        ({"weights": {}}, "weights", "bad_weight"),
        ({"weights": {"v3": 10_000}}, "weights.v3", "unknown_version"),
        ({"weights": {"v1": "10000"}}, "weights.v1", "wrong_type"),
        ({"weights": {"v1": 10_000.0}}, "weights.v1", "wrong_type"),
        ({"weights": {"v1": True, "v2": 9999}}, "weights.v1", "wrong_type"),
        ({"weights": None}, "weights", "wrong_type"),
        ({"weights": {"v1": 10**30}}, "weights", "bad_sum"),
        ({"weights": {"v1": 10_000}, "note": ""}, "note", "unknown_field"),
        ({"weights": {"v1": 10_000}, "reason": "x" * 201}, "reason", "too_long"),
        ({}, "weights", "required"),
    ],
)
def test_wrong_weights_change_nothing(
    api: Api, body: dict[str, Any], field: str, code: str
) -> None:
    response = api.put(WEIGHTS, body | {"generation": 1})
    assert (response.status_code, refusal(response)[2]) == (422, [(field, code)])
    assert Generation.objects.count() == 1


def test_a_stale_generation_is_a_conflict_that_names_the_current_one(api: Api) -> None:
    api.put(WEIGHTS, {"weights": {"v2": 10_000}, "generation": 1})
    for generation in (1, 3, 10**30, -1):
        body = {"weights": {"v1": 10_000}, "generation": generation}
        stale = api.put(WEIGHTS, body)
        assert refusal(stale) == (409, "conflict", [("generation", "conflict")])
        assert read(stale)["current"] == 2
    assert api.get(WEIGHTS)["wanted"] == {"v1": 0, "v2": 10_000}


@pytest.mark.skipif(
    connection.vendor == "sqlite",
    reason="in memory, SQLite refuses a second connection instead of waiting",
)
def test_of_writers_at_once_one_wins_and_the_others_are_told(api: Api) -> None:
    barrier = threading.Barrier(4)
    statuses: list[int] = []

    def write(weight: int) -> None:
        body = {"weights": {"v1": weight, "v2": 10_000 - weight}, "generation": 1}
        barrier.wait(10)
        statuses.append(api.put(WEIGHTS, body).status_code)
        connection.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(statuses) == [200, 409, 409, 409]
    assert api.get(WEIGHTS)["generation"] == 2


def test_history_is_newest_first_and_any_generation_is_restored(api: Api) -> None:
    first = {"weights": {"v1": 9000, "v2": 1000}, "generation": 1, "reason": "try v2"}
    api.put(WEIGHTS, first)
    api.put(WEIGHTS, {"weights": {"v2": 10_000}, "generation": 2})
    restored = api.post(f"{WEIGHTS}/restore", {"generation": 2})
    assert restored.status_code == 200
    assert (read(restored)["generation"], restored["ETag"]) == (4, '"4"')
    assert read(restored)["wanted"] == {"v1": 9000, "v2": 1000}
    history = api.get(f"{WEIGHTS}/history")["items"]
    assert [row["generation"] for row in history] == [4, 3, 2, 1]
    assert history[0]["restored_from"] == 2
    assert history[2]["reason"] == "try v2"
    assert history[2]["weights"] == {"v1": 9000, "v2": 1000}
    assert {row["actor"] for row in history} == {"token:ci"}
    page = api.get(f"{WEIGHTS}/history?limit=3")
    api.post(f"{WEIGHTS}/restore", {"generation": 1})
    page = api.get(f"{WEIGHTS}/history?limit=3&cursor={page['next']}")
    assert [row["generation"] for row in page["items"]] == [1]


def test_a_restore_heeds_if_match_and_unknown_generations(api: Api) -> None:
    api.put(WEIGHTS, {"weights": {"v2": 10_000}, "generation": 1})
    restore = f"{WEIGHTS}/restore"
    assert refusal(api.post(restore, {"generation": 9}))[:2] == (404, "not_found")
    assert refusal(api.post(restore, {"generation": 10**30}))[0] == 404
    assert refusal(api.post(restore, {}))[2] == [("generation", "required")]
    stale = api.post(restore, {"generation": 1}, if_match='"1"')
    assert refusal(stale)[:2] == (409, "conflict")
    assert api.post(restore, {"generation": 1}, if_match='"2"').status_code == 200


def test_the_history_costs_the_same_queries_for_one_row_and_for_thirty(
    api: Api,
) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            api.get(f"{WEIGHTS}/history")
        return len(queries)

    one = cost()
    for n in range(1, 30):
        api.put(WEIGHTS, {"weights": {"v1": 10_000 - n, "v2": n}, "generation": n})
    assert cost() == one <= 5


def test_the_settings_of_a_route_are_replaced_as_they_were_read(api: Api) -> None:
    shown = api.get(ROUTE)
    assert shown["generation"] == 1
    assert shown["timeouts"]["first_content_s"] == 120
    shown["timeouts"]["first_content_s"] = 30
    done = api.put(ROUTE, shown)
    assert (done.status_code, done["ETag"]) == (200, '"2"')
    assert api.get(ROUTE) == shown | {"generation": 2}
    assert api.get(WEIGHTS)["wanted"] == {"v1": 10_000, "v2": 0}
    reset = api.put(ROUTE, {}, if_match='"2"')
    assert read(reset)["timeouts"]["first_content_s"] == 120


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"retries": 9}, "retries"),
        ({"retries": "1"}, "retries"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"strategy": "best"}, "strategy"),
        ({"hash_on": "weather"}, "hash_on"),
        ({"hash_on": "header"}, "hash_header"),
        ({"hash_on": "header", "hash_header": "a b"}, "hash_header"),
        ({"timeouts": {"idle_s": 0}}, "timeouts.idle_s"),
        ({"timeouts": {"idle": 1}}, "timeouts.idle"),
        ({"retry": 1}, "retry"),
    ],
)
def test_an_unfit_setting_is_refused_by_name(
    api: Api, body: dict[str, Any], field: str
) -> None:
    response = api.put(ROUTE, body, if_match='"1"')
    assert refusal(response) == (422, "bad_setting", [(field, "bad_setting")])
    assert api.get(ROUTE)["generation"] == 1


def test_a_route_is_guarded_by_its_generation(api: Api) -> None:
    assert api.put(ROUTE, {"retries": 2}).status_code == 428
    assert api.put(ROUTE, {"retries": 2, "generation": "1"}).status_code == 422
    stale = api.put(ROUTE, {"retries": 2, "generation": 7})
    assert (stale.status_code, read(stale)["current"]) == (409, 1)


def test_a_route_without_versions_says_what_it_needs(api: Api) -> None:
    api.model("bare", versions=())
    assert api.get("/models/bare/weights")["wanted"] == {}
    response = api.put("/models/bare/route", {"generation": 0})
    assert refusal(response)[:2] == (422, "no_version")


def test_applied_counts_the_live_gateways(api: Api) -> None:
    newest = api.get("/revisions")["items"][0]["number"]
    gateway("a", newest)
    gateway("b", newest - 1)
    applied = api.get(WEIGHTS)["applied"]
    assert applied == {"revision": newest, "gateways": 1, "of": 2}


def test_measured_tells_shares_intervals_and_whether_draws_agree(api: Api) -> None:
    api.put(WEIGHTS, {"weights": {"v1": 9000, "v2": 1000}, "generation": 1})
    newest = api.get("/revisions")["items"][0]["number"]
    gateway("a", newest)
    gateway("b", newest)
    fleet.draws_set("a", "qwen", {"v1": 903, "v2": 97})
    fleet.served_set("qwen", {("v1", "v1"): 903, ("v2", "v2"): 90, ("v2", "v1"): 7})
    shown = api.get(WEIGHTS)
    assert shown["measured"] == {
        "n": 1000,
        "shares": {"v1": 9100, "v2": 900},
        "intervals": {"v1": [8906, 9263], "v2": [737, 1094]},
        "requests": {"v1": 910, "v2": 90},
    }
    check = shown["check"]
    assert (check["result"], check["holds"], check["n"]) == ("holds", True, 1000)
    assert (check["chi_square"], check["p"]) == (0.1, 0.75183)
    assert check["gateways"] == [
        {"gateway": "a", "holds": True, "drawn": {"v1": 903, "v2": 97}},
        {"gateway": "b", "holds": None, "drawn": {}},
    ]
    fleet.draws_set("b", "qwen", {"v2": 40})
    check = api.get(WEIGHTS)["check"]
    assert (check["result"], check["holds"]) == ("fails", False)
    assert [each["holds"] for each in check["gateways"]] == [True, False]
    assert check["evidence"] > 10_000


def test_evidence_beyond_all_measure_is_still_a_number(api: Api) -> None:
    gateway("a", 3)
    fleet.draws_set("a", "qwen", {"v1": 5, "v2": 1})
    check = api.get(WEIGHTS)["check"]
    assert (check["result"], check["evidence"]) == ("fails", 1e300)


def test_gateways_are_listed_with_revision_and_age(api: Api) -> None:
    gateway("a", 2, age_s=30)
    gateway("b", 3)
    gateway("c", 3)
    items = api.get("/gateways")["items"]
    assert [(row["id"], row["revision"]) for row in items] == [
        ("a", 2),
        ("b", 3),
        ("c", 3),
    ]
    assert 30 <= items[0]["age_s"] < 40
    first = api.get("/gateways?limit=2")
    rest = api.get(f"/gateways?limit=2&cursor={first['next']}")
    assert [row["id"] for row in rest["items"]] == ["c"]
    assert rest["next"] is None
    assert refusal(api.call("get", "/gateways?cursor=x"))[0] == 422


def test_revisions_are_listed_with_their_acknowledgements(api: Api) -> None:
    body = {"weights": {"v1": 5000, "v2": 5000}, "generation": 1}
    api.put(WEIGHTS, body)
    gateway("a", 4)
    gateway("b", 4)
    newest, before = api.get("/revisions")["items"][:2]
    assert (newest["number"], newest["acknowledged"]) == (4, 2)
    assert (before["number"], before["acknowledged"]) == (3, 0)
    assert newest["actor"] == "token:ci"
    assert "snapshot" not in newest
    whole = api.get("/revisions/4")
    assert {mark["gateway"] for mark in whole["acknowledgements"]} == {"a", "b"}
    versions = whole["snapshot"]["routes"][0]["versions"]
    assert [version["weight_bp"] for version in versions] == [5000, 5000]


def test_without_redis_what_lies_in_the_database_is_still_told(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away:
        def __getattr__(self, name: str) -> Any:
            raise redis.ConnectionError("away")

    for place in ("gateways", "revisions"):
        monkeypatch.setattr(f"routing.selectors.{place}.redis_client", Away)
    shown = api.get(WEIGHTS)
    assert shown["applied"] is shown["check"] is None
    assert shown["measured"]["n"] == 0
    assert api.get("/revisions")["items"][0]["acknowledged"] is None
    assert api.get("/revisions/3")["acknowledgements"] is None
    response = api.call("get", "/gateways")
    assert refusal(response)[:2] == (503, "redis_unavailable")
    assert response["Retry-After"] == "5"


def test_the_revisions_cost_the_same_queries_for_one_row_and_for_fifty(
    api: Api,
) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            api.get("/revisions")
        return len(queries)

    few = cost()
    for n in range(100, 150):
        Revision.objects.create(number=n, epoch=1, body=b"{}", digest="", actor="x")
    assert cost() == few <= 2
