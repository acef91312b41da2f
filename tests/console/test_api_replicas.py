"""Replicas and nodes through the API."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext

from cluster import live
from cluster.actor import SYSTEM
from cluster.health import Passive, PassiveAxis, Probe, ProbeAxis, Process, ProcessAxis
from cluster.health.inflight import inflight_name
from cluster.models import AuditRecord, Replica, Version
from cluster.services import node_register
from tests import fleet
from tests.console.api import Api, read, refusal

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

PROCESS = {"model": "qwen", "version": "v1", "driver": "process", "node": "local"}


@pytest.fixture
def api() -> Api:
    """With a model qwen (v1, v2) and a node."""
    api = Api()
    api.model()
    node_register(name="local", actor=SYSTEM)
    return api


def test_a_static_replica_is_added_shown_listed_and_removed(api: Api) -> None:
    body = {"model": "qwen", "version": "v1", "driver": "static"}
    made = api.post("/replicas", body | {"address": "HTTP://127.0.0.1:9001/"})
    assert made.status_code == 201
    shown = read(made)
    assert made["Location"] == f"/api/v1/replicas/{shown['id']}"
    assert (shown["id"], shown["address"]) == ("qwen-v1-1", "http://127.0.0.1:9001")
    assert (shown["model"], shown["version"], shown["node"]) == ("qwen", "v1", None)
    assert api.get(f"/replicas/{shown['id']}") == shown
    assert api.get("/replicas")["items"] == [shown]
    removed = api.delete(f"/replicas/{shown['id']}")
    assert (removed.status_code, read(removed)) == (200, {"id": "qwen-v1-1", "cut": 0})
    assert api.get("/replicas")["items"] == []
    assert api.delete(f"/replicas/{shown['id']}").status_code == 404


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"model": "none"}, "model", "unknown_model"),
        ({"version": "none"}, "version", "unknown_version"),
        ({"driver": "docker"}, "driver", "bad_choice"),
        ({"address": ""}, "address", "bad_address"),
        ({"address": "ftp://10.0.0.1:1"}, "address", "bad_address"),
        ({"address": "http://127.0.0.1:9001"}, "address", "duplicate"),
        ({"address": "http://169.254.169.254"}, "address", "address_refused"),
        ({"address": "http://2852039166/"}, "address", "address_refused"),
        ({"address": "http://[fe80::1]:80"}, "address", "address_refused"),
        ({"address": None}, "address", "wrong_type"),
        ({"node": "local"}, "node", "unexpected"),
        ({"node": "none"}, "node", "unknown_node"),
        ({"driver": "process"}, "node", "required"),
        ({"driver": "process", "node": "local"}, "address", "unexpected"),
        ({"port": 1}, "port", "unknown_field"),
    ],
)
def test_a_wrong_replica_is_refused_beside_its_field(
    api: Api, change: dict[str, Any], field: str, code: str
) -> None:
    api.replica("http://127.0.0.1:9001")
    body = {"model": "qwen", "version": "v1", "driver": "static"}
    response = api.post("/replicas", body | {"address": "http://10.0.0.1:1"} | change)
    assert (response.status_code, refusal(response)[2]) == (422, [(field, code)])
    assert Replica.objects.count() == 1


def test_the_state_is_the_one_that_the_router_sees(api: Api) -> None:
    replica = api.replica("http://127.0.0.1:9001")
    before = api.get(f"/replicas/{replica}")["state"]
    assert (before["label"], before["eligible"]) == ("registered", False)
    live.axis_write(replica, ProbeAxis(Probe.UP, since=1_700_000_000.5))
    assert api.get(f"/replicas/{replica}")["state"] == {
        "label": "healthy",
        "cause": "probe_ok",
        "eligible": True,
        "since": "2023-11-14T22:13:20.500Z",
        "detail": "",
        "next_try": None,
        "panic": False,
        "kept": False,
        "trial": False,
        "saturated": False,
        "recovered_at": None,
    }


def test_a_replica_is_judged_among_those_of_its_model(api: Api) -> None:
    one, other = (api.replica(f"http://127.0.0.1:{port}") for port in (9001, 9002))
    until = time.time() + 60
    for replica in (one, other):
        live.axis_write(replica, ProbeAxis(Probe.UP, since=1.0))
        live.passive_change(
            replica, lambda record, now: PassiveAxis(Passive.EJECTED, now, until)
        )
    states = [api.get(f"/replicas/{replica}")["state"] for replica in (one, other)]
    assert all(state["panic"] and state["eligible"] for state in states)
    assert sorted(state["kept"] for state in states) == [False, True]


def test_a_failed_start_says_why_and_when_it_is_tried_again(api: Api) -> None:
    replica = read(api.post("/replicas", PROCESS))["id"]
    axis = ProcessAxis(
        Process.FAILED, since=1.0, detail="/models/x.gguf is missing", next_try=60.0
    )
    live.axis_write(replica, axis)
    state = api.get(f"/replicas/{replica}")["state"]
    assert (state["label"], state["cause"]) == ("failed", "start_failed")
    assert state["detail"] == "/models/x.gguf is missing"
    assert state["next_try"] == "1970-01-01T00:01:00Z"


@pytest.mark.parametrize(
    ("action", "member", "value"),
    [
        ("drain", "admin_state", "draining"),
        ("disable", "admin_state", "disabled"),
        ("stop", "wanted_running", False),
        ("restart", "wanted_running", True),
    ],
)
def test_an_action_is_done_once_and_undone_by_its_opposite(
    api: Api, action: str, member: str, value: object
) -> None:
    replica = read(api.post("/replicas", PROCESS))["id"]
    before = api.get(f"/replicas/{replica}")
    for _twice in range(2):
        done = api.post(f"/replicas/{replica}/{action}")
        assert (done.status_code, read(done)[member]) == (200, value)
    assert AuditRecord.objects.filter(action=f"replica.{action}").count() == (
        2 if action == "restart" else 1
    )
    opposite = "enable" if member == "admin_state" else "start"
    after = read(api.post(f"/replicas/{replica}/{opposite}"))
    assert after[member] == before[member]


def test_a_drained_replica_is_draining_for_the_router_at_once(api: Api) -> None:
    replica = api.replica("http://127.0.0.1:9001")
    live.axis_write(replica, ProbeAxis(Probe.UP, since=1.0))
    state = read(api.post(f"/replicas/{replica}/drain"))["state"]
    assert (state["label"], state["eligible"]) == ("draining", False)
    assert read(api.post(f"/replicas/{replica}/enable"))["state"]["eligible"]


def test_a_static_replica_is_not_ours_to_start(api: Api) -> None:
    replica = api.replica("http://127.0.0.1:9001")
    for action in ("start", "stop", "restart"):
        response = api.post(f"/replicas/{replica}/{action}")
        assert refusal(response)[:2] == (422, "not_managed")


def test_an_unknown_action_or_replica_is_not_found(api: Api) -> None:
    replica = api.replica("http://127.0.0.1:9001")
    assert api.post(f"/replicas/{replica}/explode").status_code == 404
    assert api.post("/replicas/none/drain").status_code == 404
    api.delete(f"/replicas/{replica}")
    assert api.post(f"/replicas/{replica}/drain").status_code == 404


def test_an_etag_that_is_sent_with_an_action_counts(api: Api) -> None:
    replica = api.replica("http://127.0.0.1:9001")
    etag = api.call("get", f"/replicas/{replica}")["ETag"]
    done = api.post(f"/replicas/{replica}/drain", if_match=etag)
    assert done.status_code == 200
    stale = api.post(f"/replicas/{replica}/enable", if_match=etag)
    assert refusal(stale)[:2] == (409, "conflict")
    assert api.get(f"/replicas/{replica}")["admin_state"] == "draining"


def test_without_redis_replicas_are_listed_with_an_unknown_state(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = api.replica("http://127.0.0.1:9001")

    def away(ids: object) -> None:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(live, "fleet_read", away)
    assert api.get("/replicas")["items"][0]["state"] is None
    assert api.get(f"/replicas/{replica}")["state"] is None


def test_replicas_of_one_model_are_listed_alone_and_in_pages(api: Api) -> None:
    api.model("llama", versions=("v1",))
    for port in range(9001, 9006):
        api.replica(f"http://127.0.0.1:{port}", version="v1" if port % 2 else "v2")
        api.replica(f"http://127.0.0.1:{port}", model="llama")
    seen: list[str] = []
    path = "/replicas?model=qwen&limit=2"
    while path:
        answer = api.get(path)
        seen += [row["id"] for row in answer["items"]]
        following = answer["next"]
        path = following and f"/replicas?model=qwen&limit=2&cursor={following}"
    assert seen == ["qwen-v1-1", "qwen-v1-2", "qwen-v1-3", "qwen-v2-1", "qwen-v2-2"]
    assert api.get("/replicas?model=none")["items"] == []
    assert api.get("/replicas?model=%00")["items"] == []
    assert len(api.get("/replicas")["items"]) == 10


def test_the_list_costs_the_same_queries_for_one_row_and_for_fifty(api: Api) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            api.get("/replicas")
        return len(queries)

    api.post("/replicas", PROCESS)
    one = cost()
    version = Version.objects.get(name="v2")
    for n in range(1, 51):
        Replica.objects.create(
            id=f"qwen-v2-{n}",
            version=version,
            number=n,
            driver="static",
            address=f"http://10.0.0.1:{n}",
        )
    assert cost() == one <= 3


def test_nodes_are_shown_with_how_many_replicas_they_run(api: Api) -> None:
    node_register(name="gpu-1", host="10.0.0.7", actor=SYSTEM)
    first = read(api.post("/replicas", PROCESS))["id"]
    api.post("/replicas", PROCESS)
    api.delete(f"/replicas/{first}")
    nodes = api.get("/nodes")["items"]
    assert [(n["name"], n["host"], n["replicas"]) for n in nodes] == [
        ("gpu-1", "10.0.0.7", 0),
        ("local", "127.0.0.1", 1),
    ]
    assert api.get("/nodes/local") == nodes[1]
    cursor = api.get("/nodes?limit=1")["next"]
    assert api.get(f"/nodes?limit=1&cursor={cursor}")["items"] == nodes[1:]


def test_a_drain_may_be_told_to_stop_and_by_when(api: Api) -> None:
    replica = read(api.post("/replicas", PROCESS))["id"]
    told = {"then_stop": True, "deadline_s": 60}
    drained = read(api.post(f"/replicas/{replica}/drain", told))
    assert (drained["admin_state"], drained["cut"]) == ("draining", 0)
    row = Replica.objects.get(pk=replica)
    assert row.drain_then_stop and row.drain_deadline is not None


def test_a_stop_may_be_forced_and_says_what_it_cut(api: Api) -> None:
    replica = read(api.post("/replicas", PROCESS))["id"]
    stopped = read(api.post(f"/replicas/{replica}/stop", {"force": True}))
    assert stopped["wanted_running"] is False
    # No gateway lives that could have anything open.
    assert stopped["cut"] == 0


def test_a_restart_and_a_removal_say_what_they_cut(
    api: Api, valkey: redis.Redis
) -> None:
    replica = read(api.post("/replicas", PROCESS))["id"]
    fleet.open_set(valkey, replica, 3)
    assert read(api.post(f"/replicas/{replica}/restart"))["cut"] == 3
    valkey.delete(inflight_name("g1"))
    # A gateway that lives and does not say: unknown is not none.
    assert read(api.post(f"/replicas/{replica}/restart"))["cut"] is None
    fleet.open_set(valkey, replica, 2)
    assert read(api.delete(f"/replicas/{replica}")) == {"id": replica, "cut": 2}


@pytest.mark.parametrize(
    ("action", "told", "field"),
    [
        ("start", {"force": True}, "force"),
        ("drain", {"force": True}, "force"),
        ("stop", {"then_stop": True}, "then_stop"),
        ("drain", {"then_stop": True, "deadline_s": 0}, "deadline_s"),
        ("enable", {"sometimes": True}, "sometimes"),
    ],
)
def test_an_action_takes_only_what_it_acts_on(
    api: Api, action: str, told: dict[str, Any], field: str
) -> None:
    replica = read(api.post("/replicas", PROCESS))["id"]
    status, _code, fields = refusal(api.post(f"/replicas/{replica}/{action}", told))
    assert (status, [name for name, _ in fields]) == (422, [field])
    assert Replica.objects.get(pk=replica).admin_state == "enabled"
