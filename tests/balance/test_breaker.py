"""When failures are too many, and that nothing else is counted."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.balance.breaker import Breaker


def walk(endings: str, step_s: float = 0.1) -> str:
    """The first cause along ``+`` and ``-``, one ending every so many seconds."""
    breaker = Breaker()
    for number, ending in enumerate(endings):
        now = 100.0 + number * step_s
        if ending == "+":
            breaker.good(now)
        elif cause := breaker.bad(now):
            return f"{cause} at {number + 1}"
    return ""


@pytest.mark.parametrize(
    ("endings", "cause"),
    [
        ("-----", "failures_in_a_row at 5"),
        ("----+----", ""),
        ("+-----", "failures_in_a_row at 6"),
        # Half of twenty, and never of fewer.
        ("+-" * 9, ""),
        ("+-" * 10, "failure_share at 20"),
        ("++-" * 40, ""),
        ("+" * 20 + "--++" * 3, ""),
    ],
)
def test_what_is_too_much(endings: str, cause: str) -> None:
    assert walk(endings) == cause


def test_what_is_older_than_half_a_minute_is_forgotten() -> None:
    assert walk("+-" * 60, step_s=2.0) == ""
    assert walk("-" * 5, step_s=100.0) == "failures_in_a_row at 5"


def test_after_it_was_acted_upon_it_begins_anew() -> None:
    breaker = Breaker()
    for _ in range(5):
        breaker.bad(1.0)
    breaker.reset()
    assert (breaker.in_a_row, breaker.counts(1.0)) == (0, (0, 0))


@given(st.integers(0, 1000))
def test_a_share_is_judged_by_twenty_at_least_and_by_half_of_them(seed: int) -> None:
    """Never five failures in a row, which count by themselves."""
    rng = random.Random(seed)
    breaker, row = Breaker(), 0
    for number in range(300):
        row = row + 1 if rng.random() < 0.6 and row < 4 else 0
        if not row:
            breaker.good(number / 10)
        elif breaker.bad(number / 10):
            good, bad = breaker.counts(number / 10)
            assert 2 * bad >= good + bad >= 20
