"""The statistics of shares: known values, bounds, and how seldom chance alarms."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.evidence.shares import (
    ALARM_AT,
    Agreement,
    chi_square,
    log_evidence,
    shares_bp,
    shares_check,
    wilson,
)

SPLITS = ((9000, 1000), (3300, 3300, 3400), (9900, 100))


@st.composite
def draws_with_weights(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    size = draw(st.integers(2, 6))
    cuts = draw(
        st.lists(
            st.integers(1, 9999), min_size=size - 1, max_size=size - 1, unique=True
        )
    )
    edges = [0, *sorted(cuts), 10_000]
    weights = [high - low for low, high in itertools.pairwise(edges)]
    counts = draw(st.lists(st.integers(0, 10**7), min_size=size, max_size=size))
    return counts, weights


def test_the_interval_of_a_share_has_the_values_of_the_textbook() -> None:
    """R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    for count, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert wilson(count, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_an_interval_holds_its_share_and_stays_in_range(count: int, more: int) -> None:
    n = count + more
    low, high = wilson(count, n)
    assert 0 <= low <= high <= 1
    if n:
        assert low <= count / n <= high
    low_bp, high_bp = wilson(count, n).bp
    share = shares_bp({"a": count, "b": more}).get("a", 0)
    assert 0 <= low_bp <= share <= high_bp <= 10_000


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 10**12), max_size=6))
def test_shares_sum_to_the_whole_and_round_by_less_than_one(
    counts: dict[str, int],
) -> None:
    shares = shares_bp(counts)
    n = sum(counts.values())
    assert sum(shares.values()) == (10_000 if n else 0)
    for name, share in shares.items():
        assert abs(share - counts[name] * 10_000 / n) < 1


def test_the_statistic_has_the_values_of_the_textbook() -> None:
    """Mendel's peas, 315 : 101 : 108 : 32 where 9 : 3 : 3 : 1 is expected."""
    found = chi_square([315, 108, 101, 32], [5625, 1875, 1875, 625])
    assert found == pytest.approx((0.470, 0.9254), abs=5e-4)
    # 3.841 is the 5 % point for one degree of freedom.
    assert chi_square([5098, 4902], [5000, 5000]) == pytest.approx(
        (3.8416, 0.0500), abs=5e-5
    )


def test_the_statistic_says_nothing_where_it_would_mean_nothing() -> None:
    assert chi_square([7], [10_000]) is None
    assert chi_square([44, 4], [9000, 1000]) is None
    assert chi_square([45, 5], [9000, 1000]) is not None


@given(draws_with_weights())
def test_evidence_is_the_product_of_the_odds_of_each_draw(
    drawn: tuple[list[int], list[int]],
) -> None:
    """The closed form against its definition, over at most 60 draws in any order."""
    counts, weights = [count % 11 for count in drawn[0]], drawn[1]
    order = [i for i, count in enumerate(counts) for _ in range(count)]
    random.Random(len(order)).shuffle(order)
    seen = [0] * len(weights)
    log_e = 0.0
    for i in order:
        predicted = (seen[i] + 1) / (sum(seen) + len(weights))
        log_e += math.log(predicted * 10_000 / weights[i])
        seen[i] += 1
    assert log_evidence(counts, weights) == pytest.approx(log_e, abs=1e-6)


@given(draws_with_weights())
def test_no_count_is_too_large_to_judge(drawn: tuple[list[int], list[int]]) -> None:
    counts, weights = drawn
    names = "abcdef"
    verdict = shares_check(
        dict(zip(names, counts, strict=False)), dict(zip(names, weights, strict=False))
    )
    assert 0 <= verdict.evidence < math.inf
    assert verdict.fails == (verdict.evidence >= ALARM_AT)
    assert verdict.n == sum(counts)


def peaks(weights: tuple[int, ...], *, routes: int, draws: int) -> list[float]:
    """The largest evidence that each of many sound routes ever shows, with a look
    after every draw."""
    rng = random.Random(20_261)
    shares = [weight / 10_000 for weight in weights]
    found = []
    for _ in range(routes):
        seen = [1.0] * len(shares)
        value = peak = 1.0
        for n, i in enumerate(rng.choices(range(len(shares)), shares, k=draws)):
            value *= seen[i] / (n + len(shares)) / shares[i]
            seen[i] += 1
            peak = max(peak, value)
        found.append(peak)
    return found


@pytest.mark.parametrize("weights", SPLITS)
def test_sound_routes_seldom_alarm_however_often_one_looks(
    weights: tuple[int, ...],
) -> None:
    """1 500 routes with 600 looks each. The bound is 1/A: 75 routes for A = 20."""
    found = peaks(weights, routes=1500, draws=600)
    assert 0 < sum(peak >= 20 for peak in found) <= 75
    assert sum(peak >= ALARM_AT for peak in found) == 0


@pytest.mark.parametrize(
    ("weights", "served", "within"),
    [
        # A list's order decides instead of the weights: 70/30 served as 100/0.
        ({"v1": 7000, "v2": 3000}, (100, 0), 40),
        ({"v1": 9000, "v2": 1000}, (100, 0), 150),
        ({"v1": 9000, "v2": 1000}, (50, 50), 40),
        ({"v1": 9000, "v2": 1000}, (80, 20), 350),
        ({"v1": 5000, "v2": 5000}, (55, 45), 3000),
    ],
)
def test_a_router_that_ignores_the_weights_is_found(
    weights: dict[str, int], served: tuple[int, int], within: int
) -> None:
    """Draws in exactly the wrong shares, spread evenly."""
    for n in range(1, within + 1):
        v1 = round(n * served[0] / 100)
        if shares_check({"v1": v1, "v2": n - v1}, weights).fails:
            return
    pytest.fail(f"not found within {within} draws")


def test_a_version_of_weight_0_must_get_nothing_at_all() -> None:
    weights = {"v1": 10_000, "v2": 0}
    for verdict in (
        shares_check({"v1": 10**6, "v2": 1}, weights),
        shares_check({"v1": 10**6}, weights, served={"v1": 10**6, "v2": 1}),
        shares_check({"v2": 1}, {"v1": 10_000}),
    ):
        assert verdict.fails and verdict.forbidden == ("v2",)
        assert verdict.evidence == math.inf
    sound = shares_check({"v1": 9, "v2": 0}, weights, served={"v1": 9, "v2": 0})
    assert sound.agreement is Agreement.ONE_VERSION


def test_what_other_versions_served_by_failover_is_not_judged() -> None:
    weights = {"v1": 5000, "v2": 5000}
    verdict = shares_check({"v1": 500, "v2": 500}, weights, served={"v1": 1000})
    assert verdict.agreement is Agreement.HOLDS


@pytest.mark.parametrize(
    ("drawn", "weights", "agreement"),
    [
        ({}, {}, Agreement.NO_WEIGHTS),
        ({"v1": 4}, {"v1": 0}, Agreement.NO_WEIGHTS),
        ({}, {"v1": 9000, "v2": 1000}, Agreement.NOTHING_DRAWN),
        ({"v1": 0}, {"v1": 10_000}, Agreement.NOTHING_DRAWN),
        ({"v1": 7}, {"v1": 10_000, "v2": 0}, Agreement.ONE_VERSION),
        ({"v1": 9, "v2": 1}, {"v1": 9000, "v2": 1000}, Agreement.FEW),
        ({"v1": 900, "v2": 100}, {"v1": 9000, "v2": 1000}, Agreement.HOLDS),
        # Few may be enough for a gross error.
        ({"v2": 6}, {"v1": 9900, "v2": 100}, Agreement.FAILS),
    ],
)
def test_every_case_has_an_answer(
    drawn: dict[str, int], weights: dict[str, int], agreement: Agreement
) -> None:
    assert shares_check(drawn, weights).agreement is agreement
