"""How many second tries a route may make, as arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.balance.retry_budget import (
    ALWAYS_PER_S,
    SHARE,
    WINDOW_S,
    RetryBudget,
)

FLOOR = ALWAYS_PER_S * WINDOW_S


def taken(budget: RetryBudget, now: float, most: int = 10_000) -> int:
    """How many may be made at that moment, one after the other."""
    return next(n for n in range(most) if not budget.take(now))


def test_a_quiet_route_may_try_again_as_often_as_a_replica_that_dies_needs() -> None:
    assert taken(RetryBudget(), 100.0) == FLOOR


def test_a_fifth_of_the_requests_of_the_window_comes_on_top() -> None:
    budget = RetryBudget()
    for number in range(500):
        budget.request(100.0 + number / 100)
    assert taken(budget, 105.0) == FLOOR + 100
    # None is left until the first of them are ten seconds old.
    assert not budget.take(109.9)
    assert taken(budget, 110.0) == 0
    assert taken(budget, 115.0) == FLOOR


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=300))
def test_no_retry_is_made_that_the_window_does_not_bear(
    steps: list[tuple[float, bool]],
) -> None:
    budget, now = RetryBudget(), 50.0
    events: list[tuple[int, bool]] = []
    for passed_s, is_retry in steps:
        now += passed_s
        if not is_retry:
            budget.request(now)
            events.append((int(now), False))
            continue
        window = [retry for second, retry in events if second > int(now) - WINDOW_S]
        retries = sum(window)
        may = retries < FLOOR + SHARE * (len(window) - retries)
        assert budget.take(now) is may
        if may:
            events.append((int(now), True))
