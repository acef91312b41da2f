"""Ejection: how long, how often, what ends it, and that nothing shortens it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.health import Passive, PassiveAxis, Process, ProcessAxis, Record
from cluster.health.passive import (
    cleared,
    count_at,
    ejected,
    later,
    passive_of,
    readmitted,
    recovered,
    suspected,
)


def eject(before: PassiveAxis | None, now: float, **fields: Any) -> PassiveAxis:
    given: dict[str, Any] = {
        **{"cause": "hang", "detail": "d", "said_by": "gw", "process_since": 0.0},
        **{"jitter": 0.0},
    }
    return ejected(before, **{**given, **fields}, now=now)


def test_each_ejection_is_longer_and_the_third_within_ten_minutes_a_quarantine() -> (
    None
):
    first = eject(None, 1000.0)
    assert (first.state, first.until, first.count) == (Passive.EJECTED, 1030.0, 1)
    second = eject(first, 1031.0)
    assert (second.state, second.until, second.count) == (Passive.EJECTED, 1091.0, 2)
    third = eject(second, 1092.0)
    assert (third.state, third.count) == (Passive.QUARANTINED, 3)
    assert eject(third, 1200.0) == third


def test_an_ejection_lasts_five_minutes_at_most_and_jitter_adds_a_fifth() -> None:
    often = PassiveAxis(Passive.EJECTED, 0.0, 10.0, 40)
    assert eject(often, 1000.0).until == 1300.0
    assert eject(None, 1000.0, jitter=1.0).until == 1036.0


def test_two_gateways_that_see_the_same_trouble_count_it_once() -> None:
    first = eject(None, 1000.0, said_by="a", jitter=1.0)
    assert eject(first, 1000.2, said_by="b") == first


@given(st.lists(st.floats(0.0, 400.0), max_size=12), st.floats(0.0, 1.0))
def test_no_ejection_is_ever_shortened(pauses: list[float], jitter: float) -> None:
    axis, now = None, 1000.0
    for pause in pauses:
        now += pause
        after = eject(axis, now, jitter=jitter)
        if axis is not None and after.state is Passive.EJECTED:
            assert after.until >= axis.until
        axis = after


@pytest.mark.parametrize(
    ("healthy_s", "count"), [(0, 3), (299, 3), (300, 2), (899, 1), (900, 0), (9000, 0)]
)
def test_five_healthy_minutes_forgive_one_ejection(
    healthy_s: float, count: int
) -> None:
    axis = PassiveAxis(Passive.IN, 1000.0, count=3)
    assert count_at(axis, 1000.0 + healthy_s) == count
    assert eject(axis, 1000.0 + healthy_s).count == count + 1


def test_a_success_ends_an_ejection_only_when_its_time_is_over() -> None:
    axis = eject(None, 1000.0)
    assert recovered(axis, was_out=True, now=1029.0) == axis
    back = recovered(axis, was_out=True, now=1031.0)
    assert (back.state, back.recovered_at, back.count) == (Passive.IN, 1031.0, 1)
    assert back.ejections == (1000.0,)
    assert recovered(axis, was_out=False, now=1031.0).recovered_at == 0.0
    quarantined = PassiveAxis(Passive.QUARANTINED, 1000.0)
    assert recovered(quarantined, was_out=True, now=9000.0) == quarantined


def test_whoever_is_readmitted_starts_with_a_clean_sheet() -> None:
    axis = eject(eject(eject(None, 1000.0), 1031.0), 1092.0)
    back = readmitted(axis, now=1200.0)
    assert (back.state, back.ejections, back.recovered_at) == (Passive.IN, (), 1200.0)
    assert eject(back, 1201.0).state is Passive.EJECTED
    assert readmitted(back, now=1300.0) == back


def test_a_suspicion_touches_nothing_that_is_out_and_is_cleared() -> None:
    def suspect(before: PassiveAxis | None) -> PassiveAxis:
        return suspected(
            before, cause="hang", detail="d", said_by="g", process_since=0, now=1000
        )

    out = eject(None, 990.0)
    assert suspect(out) == out
    axis = suspect(PassiveAxis(Passive.IN, 600.0, count=2, ejections=(390.0,)))
    assert (axis.state, axis.until, axis.count) == (Passive.SUSPECT, 1020.0, 1)
    back = cleared(axis, now=1001.0)
    assert (back.state, back.ejections, back.cause) == (Passive.IN, (390.0,), "")
    assert cleared(out, now=1001.0) == out


def test_what_was_seen_of_an_earlier_process_does_not_keep_a_new_one_out() -> None:
    axis = eject(None, 1000.0, process_since=1.0)
    record = Record(None, ProcessAxis(Process.RUNNING, 2.0), passive=axis)
    assert passive_of(record) is None
    again = eject(axis, 1010.0, process_since=2.0)
    assert (again.count, again.ejections) == (2, (1000.0, 1010.0))


def test_of_two_words_the_newer_one_counts() -> None:
    old, new = PassiveAxis(Passive.IN, 1.0), PassiveAxis(Passive.EJECTED, 2.0, 30.0)
    assert later(old, new) == later(new, old) == new
    assert later(None, old) == old
    longer = PassiveAxis(Passive.EJECTED, 2.0, 40.0)
    assert later(new, longer) == longer
