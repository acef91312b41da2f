"""Draws, two-choice and the order of candidates, as arithmetic."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from routing.balance.candidates import Candidates
from routing.balance.draw import Draw
from routing.balance.power_of_two import power_of_two
from routing.balance.router import Route, Router
from routing.balance.state import ReplicaStates, Standing
from routing.contracts.outcome import Choice, Tier, Why
from routing.contracts.route import RouteSettings
from routing.contracts.snapshot import (
    ReplicaEntry,
    RouteEntry,
    Snapshot,
    VersionEntry,
)

Shape = dict[str, tuple[int, int]]


def route_of(
    shape: Shape,
    standing: Standing = Standing.ELIGIBLE,
    settings: RouteSettings | None = None,
) -> Route:
    """A compiled route: version name → (weight, number of replicas)."""
    versions = tuple(
        VersionEntry(
            name,
            "generic",
            "m",
            weight,
            tuple(ReplicaEntry(f"{name}-{n}", "http://x:1") for n in range(count)),
        )
        for name, (weight, count) in shape.items()
    )
    entry = RouteEntry("m", "chat", 0, 1, settings or RouteSettings(), versions)
    states = ReplicaStates()
    router = Router.compile(Snapshot(1, 1, 1, 0.0, (entry,)), states)
    states.keep(router.members())
    for state in states.all():
        state.standing = standing
    return router.routes["m"]


def order(route: Route, seed: int = 0, only: str = "") -> list[str]:
    version = route.versions[only] if only else None
    candidates = Candidates(route, random.Random(seed), version)
    found = []
    while candidate := candidates.next(now=100.0):
        found.append(candidate.replica.id)
    return found


def first_versions(route: Route, n: int) -> Counter[str]:
    rng = random.Random(1)
    counts: Counter[str] = Counter()
    for _ in range(n):
        candidate = Candidates(route, rng).next(now=100.0)
        assert candidate is not None
        counts[candidate.version.name] += 1
    return counts


def test_shares_lie_within_binomial_bounds_and_weight_zero_is_never_drawn() -> None:
    route = route_of({"v1": (9000, 2), "v2": (1000, 1), "v3": (0, 1)})
    counts = first_versions(route, 20_000)
    assert abs(counts["v2"] - 2000) < 5 * math.sqrt(20_000 * 0.9 * 0.1)
    assert counts["v3"] == 0


def test_the_probability_of_the_draw_is_its_share() -> None:
    draw = Draw([("a", 9000), ("b", 1000), ("c", 0)])
    rng = random.Random(2)
    assert {draw.take(rng) for _ in range(500)} == {("a", 0.9), ("b", 0.1)}


@pytest.mark.parametrize("value", [0.0, 0.5, 1 - 2**-53])
def test_the_edges_of_the_unit_interval_draw_only_weighted_items(value: float) -> None:
    class Fixed:
        def random(self) -> float:
            return value

    draw = Draw([("zero", 0), ("all", 10_000), ("none", 0)])
    assert draw.take(Fixed()) == ("all", 1.0)


def test_two_choice_prefers_the_one_with_less_in_flight() -> None:
    route = route_of({"v1": (10_000, 2)})
    busy, free = route.versions["v1"].replicas
    busy.state.in_flight = 1
    rng = random.Random(3)
    picks = {power_of_two((busy, free), rng, 0.0).replica for _ in range(50)}
    assert picks == {free}


def test_equal_replicas_share_evenly() -> None:
    replicas = route_of({"v1": (10_000, 3)}).versions["v1"].replicas
    rng = random.Random(4)
    counts = Counter(power_of_two(replicas, rng, 0.0).replica.id for _ in range(9000))
    assert all(abs(count - 3000) < 250 for count in counts.values())


def test_a_retry_stays_in_the_version_and_repeats_no_replica() -> None:
    route = route_of({"v1": (10_000, 3), "v2": (0, 2)})
    for seed in range(20):
        assert sorted(order(route, seed)) == ["v1-0", "v1-1", "v1-2"]


def test_a_version_without_an_eligible_replica_fails_over_but_keeps_its_draw() -> None:
    route = route_of({"v1": (9999, 1), "v2": (1, 1), "v3": (0, 1)})
    route.versions["v1"].replicas[0].state.standing = Standing.BARRED
    candidates = Candidates(route, random.Random(5))
    candidate = candidates.next(now=100.0)
    assert candidate is not None
    assert candidate.replica.id == "v2-0"
    assert candidates.first is route.versions["v1"]
    assert candidates.probability == 0.9999
    assert candidates.next(now=100.0) is None


def test_a_barred_replica_is_never_used_and_an_unknown_one_only_last() -> None:
    route = route_of({"v1": (10_000, 3)})
    eligible, unknown, barred = route.versions["v1"].replicas
    unknown.state.standing = Standing.UNKNOWN
    barred.state.standing = Standing.BARRED
    assert order(route) == [eligible.id, unknown.id]


def test_a_replica_that_refused_is_used_only_when_no_other_is_there() -> None:
    route = route_of({"v1": (9999, 2), "v2": (1, 1)})
    refused, other = route.versions["v1"].replicas
    refused.state.refused(now=99.0)
    assert order(route) == [other.id, "v2-0", refused.id]


def test_avoidance_doubles_up_to_a_limit_and_an_answer_clears_it() -> None:
    state = ReplicaStates().get("r")
    waits = []
    for _ in range(5):
        state.refused(now=0.0)
        waits.append(state.avoid_until)
    assert waits == [2, 4, 8, 10, 10]
    state.answered()
    assert state.avoid_until == 0
    state.refused(now=0.0)
    assert state.avoid_until == 2


def test_a_chosen_version_is_exact_even_with_weight_zero() -> None:
    route = route_of({"v1": (10_000, 1), "v2": (0, 1)})
    assert order(route, only="v2") == ["v2-0"]
    route.versions["v2"].replicas[0].state.standing = Standing.BARRED
    assert order(route, only="v2") == []


def test_a_route_without_versions_or_weights_has_no_candidate() -> None:
    assert order(route_of({})) == []
    assert order(route_of({"v1": (0, 1)})) == []


def test_state_outlives_a_snapshot_and_is_forgotten_with_the_last_request() -> None:
    states = ReplicaStates()
    states.get("gone").in_flight = 1
    states.keep({})
    assert [state.id for state in states.all()] == ["gone"]
    states.get("gone").in_flight = 0
    states.keep({})
    assert states.all() == []


def test_a_suspect_and_then_an_ejected_replica_are_used_before_refusing() -> None:
    route = route_of({"v1": (10_000, 5)})
    standings = (
        *(Standing.EJECTED, Standing.SUSPECT, Standing.UNKNOWN),
        *(Standing.ELIGIBLE, Standing.BARRED),
    )
    for replica, standing in zip(route.versions["v1"].replicas, standings, strict=True):
        replica.state.standing = standing
    assert order(route) == ["v1-3", "v1-2", "v1-1", "v1-0"]


def test_one_request_at_a_time_tries_a_replica_whose_ejection_is_over() -> None:
    route = route_of({"v1": (10_000, 3)})
    state = route.versions["v1"].replicas[0].state
    state.standing = Standing.TRIAL
    route.group.trials = (state,)
    candidate = Candidates(route, random.Random(0)).next(now=100.0)
    assert candidate is not None and candidate.trial and candidate.replica.id == "v1-0"
    state.trial_since = 100.0
    for seed in range(20):
        assert "v1-0" not in order(route, seed)[:2]
    # Without another it is tried by anybody.
    assert order(route)[-1] == "v1-0"


def test_a_failed_trial_leaves_the_others_to_its_request() -> None:
    route = route_of({"v1": (10_000, 2)})
    state = route.versions["v1"].replicas[0].state
    state.standing = Standing.TRIAL
    route.group.trials = (state,)
    assert order(route) == ["v1-0", "v1-1"]


def test_failures_make_a_replica_dearer_than_its_load() -> None:
    route = route_of({"v1": (10_000, 2)})
    failing, busy = route.versions["v1"].replicas
    busy.state.in_flight = 2
    for _ in range(3):
        failing.state.breaker.bad(now=100.0)
    picks = {order(route, seed)[0] for seed in range(20)}
    assert picks == {busy.id}


def test_a_replica_that_came_back_never_has_more_than_its_growing_share() -> None:
    """Long streams that never end: the worst case for whoever has none yet."""
    replicas = route_of({"v1": (10_000, 3)}).versions["v1"].replicas
    back = replicas[0].state
    for other in replicas[1:]:
        other.state.in_flight = 20
    back.slow_since = 100.0
    rng = random.Random(6)
    for number in range(120):
        now = 100.0 + number / 2
        power_of_two(replicas, rng, now).replica.state.in_flight += 1
        busiest = max(replica.state.in_flight for replica in replicas[1:])
        assert back.in_flight <= back.share(now) * (busiest + 1)
    assert back.share(160.0) == 1.0 and back.slow_since == 0.0


def test_a_slow_start_bends_no_share_of_a_version() -> None:
    route = route_of({"v1": (5000, 2), "v2": (5000, 1)})
    route.versions["v2"].replicas[0].state.slow_since = 100.0
    counts = first_versions(route, 4000)
    assert abs(counts["v2"] - 2000) < 200


def choices(route: Route, seed: int = 0) -> list[Choice]:
    candidates = Candidates(route, random.Random(seed))
    found = []
    while candidate := candidates.next(now=100.0):
        found.append(candidate.choice)
    return found


def test_a_choice_tells_its_tier_the_costs_and_the_one_it_was_compared_with() -> None:
    route = route_of({"v1": (10_000, 4)})
    busy, free, refused, barred = route.versions["v1"].replicas
    busy.state.in_flight = 2
    refused.state.refused(now=99.0)
    barred.state.standing = Standing.BARRED
    assert choices(route) == [
        Choice(Tier.READY, Why.LOWER_COST, 2, 4, 1.0, busy.id, 3.0),
        Choice(Tier.READY, Why.ONLY, 1, 4),
        Choice(Tier.ELIGIBLE, Why.ONLY, 1, 4),
    ]


def test_equals_are_told_as_a_tie_with_the_costs_of_both() -> None:
    route = route_of({"v1": (10_000, 2)})
    for seed in range(5):
        first, second = choices(route, seed)
        assert (first.why, first.cost, first.other_cost) == (Why.TIE, 1.0, 1.0)
        assert (second.why, second.of, second.total) == (Why.ONLY, 1, 2)


def test_a_trial_is_told_as_one_and_what_follows_it_is_not() -> None:
    route = route_of({"v1": (10_000, 2)})
    state = route.versions["v1"].replicas[0].state
    state.standing = Standing.TRIAL
    route.group.trials = (state,)
    trial, after = choices(route)
    assert trial == Choice(Tier.OUT, Why.TRIAL, 1, 2)
    assert after == Choice(Tier.READY, Why.ONLY, 1, 2)


def test_a_last_resort_is_told_by_its_tier() -> None:
    route = route_of({"v1": (10_000, 3)})
    standings = (Standing.EJECTED, Standing.SUSPECT, Standing.UNKNOWN)
    for replica, standing in zip(route.versions["v1"].replicas, standings, strict=True):
        replica.state.standing = standing
    tiers = [choice.tier for choice in choices(route)]
    assert tiers == [Tier.UNKNOWN, Tier.SUSPECT, Tier.OUT]
