"""Phases add up, whatever the moments say."""

from __future__ import annotations

import random
from typing import Any

import pytest

from console.waterfall import Kind, phases
from routing.contracts.outcome import Attempt, Outcome
from tests import outcomes

MOMENTS = (
    *("received_ms", "authorized_ms", "admitted_ms"),
    *("first_byte_ms", "first_content_ms", "last_byte_ms"),
)


def test_the_phases_of_a_request_in_their_order() -> None:
    found = [
        (phase.kind.value, round(phase.start_ms, 2), round(phase.end_ms, 2))
        for phase in phases(outcomes.outcome(1.0))
    ]
    assert found == [
        ("receive", 0.0, 0.5),
        ("key", 0.5, 0.75),
        ("routing", 0.75, 1.0),
        ("queue", 1.0, 21.0),
        ("connect", 21.0, 23.0),
        ("gap", 23.0, 30.0),
        ("connect", 30.0, 31.0),
        ("wait", 31.0, 100.0),
        ("prefill", 100.0, 210.0),
        ("decode", 210.0, 1249.0),
        ("delivery", 1249.0, 1250.0),
    ]


def test_a_request_that_gave_up_in_the_queue_was_there_to_the_end() -> None:
    one = outcomes.refused(1.0, queue_ms=30.0, duration_ms=32.0)
    kinds = [phase.kind for phase in phases(one)]
    assert kinds == [Kind.RECEIVE, Kind.KEY, Kind.ROUTING, Kind.QUEUE]


def test_a_failed_last_attempt_is_waiting_and_not_decoding() -> None:
    attempt = Attempt("r", "v1", error="timeout", duration_ms=100.0, at_ms=2.0)
    one = outcomes.outcome(
        1.0,
        attempts=(attempt,),
        queue_ms=0.0,
        admitted_ms=2.0,
        first_byte_ms=None,
        first_content_ms=None,
        last_byte_ms=None,
        duration_ms=102.5,
    )
    assert [(p.kind, p.attempt) for p in phases(one)][-2:] == [
        (Kind.WAIT, 1),
        (Kind.GAP, 0),
    ]


def contradictory(rng: random.Random) -> Outcome:
    def moment() -> Any:
        return rng.choice([None, 0.0, rng.random() * 100, -5.0, 1e12])

    attempts = tuple(
        Attempt("r", "v", "", abs(moment() or 0.0), moment() or 0.0, moment())
        for _n in range(rng.randrange(4))
    )
    return outcomes.outcome(
        1.0,
        **{name: moment() for name in MOMENTS},
        attempts=attempts,
        queue_ms=abs(moment() or 0.0),
        duration_ms=rng.choice([0.0, 40.0, 100.0]),
    )


def test_whatever_the_moments_are_phases_follow_each_other_and_fill_the_whole() -> None:
    rng = random.Random(5)
    for _turn in range(300):
        one = contradictory(rng)
        here = 0.0
        for phase in phases(one):
            assert phase.start_ms == here and phase.end_ms >= phase.start_ms
            assert 0 <= float(phase.x[:-1]) <= 100
            assert float(phase.x[:-1]) + float(phase.width[:-1]) <= 100.01
            here = phase.end_ms
        assert here == pytest.approx(one.duration_ms, abs=0.006)
