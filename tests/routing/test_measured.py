"""What was served, and whether gateways draw as configured: from rows and records."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from cluster import live
from cluster.models import Model
from routing.contracts import names
from routing.evidence.shares import Agreement
from routing.models import TelemetryCursor, TrafficMinute
from routing.selectors.measured import (
    RouteCheck,
    RouteMeasured,
    check_list,
    draws_per_minute,
    measured_list,
    split_list,
)
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey", "model"),
]


@pytest.fixture
def model(valkey: redis.Redis) -> Model:
    """v1 (90 %), v2 (10 %) and v3 (0 %); generation 2."""
    model = fleet.model_add("qwen", "v1", "v2", "v3")
    fleet.weights_give("qwen", {"v1": 9000, "v2": 1000})
    return model


def measured() -> RouteMeasured:
    return measured_list(split_list(model="qwen"))["qwen"]


def check() -> RouteCheck:
    return check_list(split_list(model="qwen"))["qwen"]


def test_shares_are_of_the_generation_in_force_over_all_gateways() -> None:
    fleet.served_set("qwen", {("v1", "v1"): 100}, generation=1)
    fleet.served_set("qwen", {("v1", "v1"): 440, ("v2", "v2"): 60}, gateway="g1")
    fleet.served_set("qwen", {("v1", "v1"): 460, ("v2", "v2"): 40}, gateway="gone")
    found = measured()
    assert (found.generation, found.n) == (2, 1000)
    assert [(s.version, s.wanted_bp, s.requests, s.share_bp) for s in found.shares] == [
        ("v1", 9000, 900, 9000),
        ("v2", 1000, 100, 1000),
        ("v3", 0, 0, 0),
    ]
    assert (found.shares[1].low_bp, found.shares[1].high_bp) == (829, 1202)
    assert (found.shares[2].low_bp, found.shares[2].high_bp) == (0, 39)
    assert found.failovers == []


def test_nothing_served_is_told_as_such() -> None:
    found = measured()
    assert (found.n, found.failovers) == (0, [])
    assert {(s.share_bp, s.low_bp, s.high_bp) for s in found.shares} == {(0, 0, 10_000)}


def test_a_failover_says_who_served_for_whom() -> None:
    counts = {("v1", "v1"): 900, ("v2", "v2"): 60, ("v2", "v1"): 40}
    fleet.served_set("qwen", counts)
    fleet.served_set("qwen", {("v2", ""): 500})
    found = measured()
    assert [share.requests for share in found.shares] == [940, 60, 0]
    (failover,) = found.failovers
    assert (failover.drawn, failover.served) == ("v2", "v1")
    assert (failover.requests, failover.of) == (40, 100)


def test_the_check_holds_for_draws_by_the_weights() -> None:
    fleet.gateway_set("g1")
    fleet.gateway_set("g2")
    fleet.draws_set("g1", "qwen", {"v1": 900, "v2": 100})
    fleet.draws_set("g2", "qwen", {"v1": 1795, "v2": 205})
    found = check()
    assert found.agreement is Agreement.HOLDS
    assert (found.together.n, found.drawn) == (3000, {"v1": 2695, "v2": 305})
    assert found.together.chi_square is not None
    assert found.together.chi_square.p == pytest.approx(0.7609, abs=1e-4)
    assert [each.verdict and each.verdict.n for each in found.gateways] == [1000, 2000]


def test_one_gateway_that_draws_otherwise_fails_the_route() -> None:
    for name in ("g1", "g2"):
        fleet.gateway_set(name)
    fleet.draws_set("g1", "qwen", {"v1": 90_000, "v2": 10_000})
    fleet.draws_set("g2", "qwen", {"v1": 200})
    found = check()
    assert found.fails and not found.together.fails
    assert [each.gateway for each in found.failing] == ["g2"]
    assert found.evidence > 10_000


def test_gateways_that_all_err_a_little_fail_together() -> None:
    for number in range(8):
        fleet.gateway_set(f"g{number}")
        fleet.draws_set(f"g{number}", "qwen", {"v1": 870, "v2": 130})
    found = check()
    assert found.fails and found.failing == []


def test_failover_and_slow_versions_are_not_held_against_the_gateways() -> None:
    """Every draw of v2 was served by v1, or has not ended: the draws are right."""
    fleet.gateway_set("g1")
    fleet.draws_set("g1", "qwen", {"v1": 900, "v2": 100})
    fleet.served_set("qwen", {("v1", "v1"): 900, ("v2", "v1"): 20}, gateway="g1")
    assert check().agreement is Agreement.HOLDS
    assert measured().shares[1].requests == 0


@pytest.mark.parametrize("drawn", [{"v1": 90, "v3": 1}, {"v1": 90}])
def test_a_version_of_weight_0_fails_at_the_first_request(
    drawn: dict[str, int],
) -> None:
    fleet.gateway_set("g1")
    fleet.draws_set("g1", "qwen", drawn)
    if "v3" not in drawn:
        fleet.served_set("qwen", {("v1", "v3"): 1}, gateway="g1")
    (failing,) = check().failing
    assert failing.verdict is not None and failing.verdict.forbidden == ("v3",)


def test_what_a_gateway_that_is_gone_served_is_no_longer_judged() -> None:
    fleet.gateway_set("g1")
    fleet.served_set("qwen", {("v1", "v3"): 1}, gateway="gone")
    fleet.draws_set("gone", "qwen", {"v3": 7})
    assert not check().fails


@pytest.mark.parametrize(
    "other", [{"generation": 1}, {"epoch": 7}, {"created": 1}, {"generation": 3}]
)
def test_draws_by_another_generation_are_not_judged(other: dict[str, int]) -> None:
    fleet.gateway_set("g1")
    fleet.draws_set("g1", "qwen", {"v1": 500, "v2": 500}, **other)
    (each,) = check().gateways
    assert each.verdict is None
    assert check().agreement is Agreement.NOTHING_DRAWN


def test_a_gateway_that_says_nothing_or_nonsense_is_not_judged() -> None:
    fleet.gateway_set("g1")
    assert [each.verdict for each in check().gateways] == [None]
    live.redis_client().set(names.gateway_draws("g1"), b'{"qwen": 7}')
    assert [each.verdict for each in check().gateways] == [None]
    live.redis_client().set(names.gateway_draws("g1"), b"{}")
    (each,) = check().gateways
    assert each.verdict and each.verdict.agreement is Agreement.NOTHING_DRAWN


def test_routes_without_versions_or_with_one_have_answers() -> None:
    fleet.gateway_set("g1")
    fleet.model_add("bare")
    fleet.model_add("solo", "v1")
    fleet.draws_set("g1", "solo", {"v1": 9})
    found = check_list(split_list())
    assert found["bare"].agreement is Agreement.NO_WEIGHTS
    assert found["solo"].agreement is Agreement.ONE_VERSION
    assert measured_list(split_list())["bare"].shares == []


def test_without_a_gateway_nothing_is_drawn() -> None:
    assert check().agreement is Agreement.NOTHING_DRAWN


def test_all_routes_cost_as_many_queries_as_one() -> None:
    fleet.gateway_set("g1")

    def cost(**only: Any) -> int:
        with CaptureQueriesContext(connection) as queries:
            splits = split_list(**only)
            measured_list(splits)
            check_list(splits)
        return len(queries)

    few = cost(model="qwen")
    for number in range(12):
        fleet.model_add(f"m{number}", "v1", "v2")
    assert cost() == few == 3


def test_the_rate_is_of_the_last_whole_minutes_and_unknown_before_any() -> None:
    assert draws_per_minute(model="qwen") is None
    now = timezone.now()
    TelemetryCursor.objects.create(moved_at=now)
    assert draws_per_minute(model="qwen") == 0
    minute = now.replace(second=0, microsecond=0)
    for ago, first, chosen, requests in (
        (0, "v1", False, 1000),
        (1, "v1", False, 40),
        (5, "v2", False, 60),
        (6, "v1", False, 1000),
        (2, "v1", True, 1000),
        (2, "", False, 1000),
    ):
        TrafficMinute.objects.create(
            minute=minute - timedelta(minutes=ago),
            gateway="g1",
            model="qwen",
            generation=2,
            first_version=first,
            share_bp=9000,
            chosen=chosen,
            version=first,
            team="t",
            key="k",
            ending="completed",
            requests=requests,
        )
    found = draws_per_minute(model="qwen")
    assert found in (20, 220)  # 220 when the minute turned meanwhile
