"""Health and metrics of the console."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
import redis
from django.db import OperationalError
from django.test import Client

from cluster import live
from cluster.actor import Actor
from cluster.health import Probe, ProbeAxis
from cluster.models import Version
from cluster.services import model_create, replica_create, version_create
from console import health
from routing.contracts import names
from routing.contracts.gateway import GatewayRecord
from routing.services import key_issue, key_revoke, team_create
from tests import fleet
from tests.services import Valkey

pytestmark = pytest.mark.django_db(transaction=True)


def gateway(revision: int) -> None:
    client = live.redis_client()
    now = time.time()
    record = GatewayRecord("a", "h", 7, now, 1, revision, now)
    client.set(names.gateway("a"), msgspec.json.encode(record))
    client.zadd(names.GATEWAYS, {"a": now})


def codes(entries: list[dict[str, str]]) -> list[str]:
    return [entry["code"] for entry in entries]


def ready() -> tuple[int, list[str], list[str]]:
    response = Client().get("/readyz")
    body = response.json()
    assert body["status"] == ("ready" if response.status_code == 200 else "not ready")
    return response.status_code, codes(body["reasons"]), codes(body["warnings"])


def version(actor: Actor) -> Version:
    model = model_create(name="qwen", actor=actor)
    return version_create(
        model=model, name="v1", engine="generic", served_name="q", actor=actor
    )


def test_alive_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(live, "redis_client", lambda: pytest.fail("asked"))
    with django_assert_num_queries(0):
        assert Client().get("/livez").json() == {"status": "ok"}


def test_ready_warns_of_gateways_that_are_absent_or_behind(
    valkey: redis.Redis, actor: Actor
) -> None:
    assert ready() == (200, [], ["gateways"])
    version(actor)
    gateway(1)
    assert ready() == (200, [], ["revision"])
    gateway(2)
    assert ready() == (200, [], [])


def test_a_route_whose_weights_do_not_hold_is_named_and_counted(
    valkey: redis.Redis,
) -> None:
    fleet.model_add("qwen", "v1", "v2")
    fleet.model_add("bge", "v1")
    fleet.weights_give("qwen", {"v1": 9000, "v2": 1000})
    fleet.gateway_set("g1")
    fleet.draws_set("g1", "qwen", {"v1": 911, "v2": 89})
    assert ready() == (200, [], [])
    found = numbers()
    assert found['sluice_share_check{model="qwen"}'] == 1
    assert found['sluice_share_check_draws{model="qwen"}'] == 1000
    assert found['sluice_share_check_draws{model="bge"}'] == 0
    fleet.draws_set("g1", "qwen", {"v1": 500, "v2": 500})
    assert ready() == (200, [], ["share_check"])
    headers = {"Accept-Language": "zh-hans"}
    (warning,) = Client().get("/readyz", headers=headers).json()["warnings"]
    assert warning["detail"] == (
        "qwen: Gateway g1: v2 was drawn for 50\u00a0% of 1,000 requests; "
        "10\u00a0% is wanted."
    )
    found = numbers()
    assert found['sluice_share_check{model="qwen"}'] == 0
    assert found['sluice_share_check{model="bge"}'] == 1


def test_not_ready_while_redis_is_down_and_ready_again_after(
    valkey: redis.Redis, valkey_server: Valkey
) -> None:
    valkey_server.kill()
    try:
        assert ready() == (503, ["redis"], [])
        assert Client().get("/livez").status_code == 200
    finally:
        valkey_server.start()
    assert ready()[0] == 200


def test_not_ready_without_database_or_with_an_older_schema(
    valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(health, "_migrations_check", _raise(OperationalError("away")))
        assert ready() == (503, ["database"], [])
    health._migrations_check.cache_clear()
    with monkeypatch.context() as patch:
        plan = "django.db.migrations.executor.MigrationExecutor.migration_plan"
        patch.setattr(plan, lambda *_: ["one"])
        assert ready() == (503, ["migrations"], [])
    assert ready()[0] == 200


def _raise(error: Exception) -> Any:
    def fail(*_: object) -> None:
        raise error

    return fail


def numbers() -> dict[str, float]:
    response = Client().get("/metrics")
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = response.content.decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in found.items()}


def test_metrics_tell_what_pages_and_api_tell(
    valkey: redis.Redis, actor: Actor
) -> None:
    replica = replica_create(
        version=version(actor), driver="static", address="http://[::1]:1", actor=actor
    )
    live.axis_write(replica.id, ProbeAxis(Probe.UP, since=1.0))
    team = team_create(slug="hidden-team", actor=actor)
    key_issue(team=team, name="hidden-key", actor=actor)
    key, _secret = key_issue(team=team, name="revoked", actor=actor)
    key_revoke(key=key, actor=actor)
    gateway(3)
    found = numbers()
    assert found['sluice_replicas{state="healthy"}'] == 1
    assert found['sluice_replicas{state="down"}'] == 0
    assert found["sluice_revision"] == 3
    assert found["sluice_gateways"] == found["sluice_gateways_applied"] == 1
    assert found["sluice_models"] == found["sluice_teams"] == 1
    assert found["sluice_keys"] == 1
    assert found["sluice_redis_up"] == found["sluice_database_up"] == 1
    text = Client().get("/metrics").content.decode()
    assert "hidden" not in text
    assert found['sluice_replica_state{replica="qwen-v1-1",state="healthy"}'] == 1
    assert 'sluice_build_info{version="' in text


def test_metrics_without_redis_leave_out_what_lies_there(
    valkey: redis.Redis, valkey_server: Valkey
) -> None:
    valkey_server.kill()
    try:
        found = numbers()
    finally:
        valkey_server.start()
    assert (found["sluice_redis_up"], found["sluice_database_up"]) == (0, 1)
    assert not any(name.startswith("sluice_replicas") for name in found)
    assert "sluice_revision" in found


def test_the_numbers_cost_the_same_queries_whatever_the_fleet(
    valkey: redis.Redis, actor: Actor, django_assert_max_num_queries: Any
) -> None:
    release = version(actor)
    for port in range(1, 20):
        replica_create(
            version=release,
            driver="static",
            address=f"http://10.0.0.1:{port}",
            actor=actor,
        )
    with django_assert_max_num_queries(14):
        assert numbers()['sluice_replicas{state="registered"}'] == 19


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_health_is_only_read(valkey: redis.Redis, path: str) -> None:
    assert Client().post(path).status_code == 405
    assert Client().head(path).status_code == 200
