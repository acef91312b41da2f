"""The replicas of one route together: how many may be out, panic, and coming back."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.health import (
    Admin,
    AdminAxis,
    Cause,
    Label,
    NodeAxis,
    NodeReach,
    Passive,
    PassiveAxis,
    Probe,
    ProbeAxis,
    Process,
    ProcessAxis,
    Record,
    states_merge,
)
from cluster.health.load import Load

NOW = 1000.0
HEALTHY = Record(AdminAxis(), None, ProbeAxis(Probe.UP, 1.0))
DOWN = Record(AdminAxis(), None, ProbeAxis(Probe.DOWN, 2.0, "refused"))
LATE = Record(AdminAxis(), None, ProbeAxis(Probe.DOWN, 2.0, "timeout"))
WARMING = Record(AdminAxis(), None, ProbeAxis(Probe.WARMING, 2.0))
DISABLED = Record(AdminAxis(Admin.DISABLED), None, ProbeAxis(Probe.UP, 1.0))
DEAD = Record(
    AdminAxis(), ProcessAxis(Process.EXITED, 9.0), ProbeAxis(Probe.UP, 2.0, "", "", 1.0)
)


def ejected(since: float, until: float = 1020.0) -> Record:
    axis = PassiveAxis(Passive.EJECTED, since, until, 1, "failures_in_a_row", "five")
    return msgspec.structs.replace(HEALTHY, passive=axis)


def quarantined(since: float) -> Record:
    axis = PassiveAxis(Passive.QUARANTINED, since, cause="hang")
    return msgspec.structs.replace(HEALTHY, passive=axis)


def recovered(at: float) -> Record:
    axis = PassiveAxis(Passive.IN, at, recovered_at=at)
    return msgspec.structs.replace(HEALTHY, passive=axis)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        # One of three and one of two may be out.
        ([HEALTHY, HEALTHY, ejected(990)], "healthy+ healthy+ ejected-"),
        ([HEALTHY, ejected(990)], "healthy+ ejected-"),
        # Of three never two: the newest ejection is not carried out.
        ([HEALTHY, ejected(990), ejected(995)], "healthy+ ejected- suspect+"),
        # A quarantine comes before any ejection.
        ([HEALTHY, ejected(990), quarantined(995)], "healthy+ suspect+ quarantined-"),
        # Replicas that are down leave less room.
        ([HEALTHY, DOWN, ejected(990)], "healthy+ down- suspect+"),
        ([HEALTHY, HEALTHY, DEAD, ejected(990)], "healthy+ healthy+ down- ejected-"),
        # What is not in rotation does not count.
        (
            [HEALTHY, WARMING, DISABLED, ejected(9)],
            "healthy+ warming- disabled- ejected-",
        ),
        # Panic: less than half can serve, so whatever may answer is used.
        ([HEALTHY, DOWN, LATE], "healthy+! down-! down+!"),
        ([HEALTHY, DEAD, DOWN], "healthy+! down-! down-!"),
        ([DOWN, DOWN], "down-! down-!"),
        ([LATE, ejected(990)], "down+! suspect+!"),
        # All ejected: none is trusted, all are used.
        (
            [ejected(990), ejected(991), ejected(992)],
            "ejected+! suspect+! suspect+!",
        ),
        ([ejected(990)], "suspect+!"),
        ([], ""),
    ],
)
def test_the_states_of_a_route(records: list[Record], expected: str) -> None:
    names = {f"r{i}": record for i, record in enumerate(records)}
    states = states_merge(names, now=NOW)
    shown = [
        states[name].label.value
        + ("+" if states[name].eligible else "-")
        + ("!" if states[name].panic else "")
        for name in names
    ]
    assert shown == expected.split()


def test_an_ejection_that_is_not_carried_out_says_why_and_that() -> None:
    states = states_merge({"a": HEALTHY, "b": DOWN, "c": ejected(990)}, now=NOW)
    state = states["c"]
    assert (state.label, state.cause, state.kept, state.detail) == (
        *(Label.SUSPECT, Cause.FAILURES_IN_A_ROW, True, "five"),
    )


def test_one_replica_at_a_time_comes_back_every_five_seconds() -> None:
    records = {f"h{n}": HEALTHY for n in range(3)} | {
        "a": ejected(900, 990.0),
        "b": ejected(900, 991.0),
        "c": ejected(900, 992.0),
    }
    labels: dict[str, list[float]] = {}
    for now in range(985, 1010):
        states = states_merge(records, now=float(now))
        for name in "abc":
            if states[name].label is Label.HALF_OPEN:
                labels.setdefault(name, []).append(now)
                assert states[name].trial and not states[name].eligible
            else:
                assert states[name].next_try > now
    assert {name: times[0] for name, times in labels.items()} == {
        **{"a": 990, "b": 995, "c": 1000},
    }


def test_whoever_just_came_back_delays_the_next() -> None:
    records = {"a": HEALTHY, "b": recovered(998.0), "c": ejected(900, 999.0)}
    state = states_merge(records, now=NOW)["c"]
    assert (state.label, state.next_try) == (Label.EJECTED, 1003.0)
    assert states_merge(records, now=1003.0)["c"].label is Label.HALF_OPEN


@pytest.mark.parametrize(
    ("load", "saturated"),
    [
        (Load(NOW, waiting=5.0), True),
        (Load(NOW, waiting=4.0, kv_cache=0.5), False),
        (Load(NOW, kv_cache=0.8), True),
        (Load(NOW, error="timeout"), False),
        (Load(NOW - 100, waiting=50.0), False),
    ],
)
def test_saturation_is_said_and_takes_nothing_out(load: Load, saturated: bool) -> None:
    state = states_merge({"a": HEALTHY}, now=NOW, loads={"a": load})["a"]
    assert state.saturated is saturated
    assert state.eligible and state.label is Label.HEALTHY


moments = st.sampled_from([0.0, 10.0, 900.0, 990.0, 999.0, 1010.0, 1400.0])
records = st.builds(
    Record,
    admin=st.none() | st.builds(AdminAxis, st.sampled_from(Admin), moments),
    process=st.none() | st.builds(ProcessAxis, st.sampled_from(Process), moments),
    probe=st.none()
    | st.builds(
        ProbeAxis,
        st.sampled_from(Probe),
        moments,
        st.sampled_from(["", "refused", "timeout", "deep_probe_failed"]),
        process_since=moments,
    ),
    passive=st.none()
    | st.builds(
        PassiveAxis,
        st.sampled_from(Passive),
        moments,
        moments,
        cause=st.sampled_from(["hang", "", "from a later release"]),
        recovered_at=moments,
        process_since=moments,
    ),
    node=st.none() | st.builds(NodeAxis, st.sampled_from(NodeReach), moments),
)
routes = st.dictionaries(st.sampled_from("abcdefgh"), records, max_size=8)


@given(routes)
def test_what_nobody_wants_or_what_does_not_run_is_never_eligible(
    route: dict[str, Record],
) -> None:
    for name, state in states_merge(route, now=NOW).items():
        record = route[name]
        if record.admin is not None and record.admin.state is not Admin.ENABLED:
            assert not state.eligible and not state.trial
        if record.process is not None and record.process.state is not Process.RUNNING:
            assert not state.eligible and not state.trial


def _able(record: Record) -> bool:
    """Enabled, running, and the probe of this process has nothing against it."""
    blind = msgspec.structs.replace(record, passive=None)
    state = states_merge({"": blind}, now=NOW)[""]
    return state.eligible and not state.panic


@given(routes)
def test_ejections_leave_half_of_what_should_serve_or_all_that_can(
    route: dict[str, Record],
) -> None:
    states = states_merge(route, now=NOW)
    able = [name for name, record in route.items() if _able(record)]
    enabled = len(able) + sum(
        route[name].probe is not None and state.label in (Label.DOWN,)
        for name, state in states.items()
        if name not in able
    )
    if able:
        least = min(len(able), max(1, -(-enabled // 2)))
        assert sum(states[name].eligible for name in able) >= least


@given(routes, st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(
    route: dict[str, Record], rng: random.Random
) -> None:
    names = list(route)
    rng.shuffle(names)
    shuffled = {name: route[name] for name in names}
    assert states_merge(route, now=NOW) == states_merge(shuffled, now=NOW)


@given(routes)
def test_panic_is_of_the_whole_route_and_trials_are_none_then(
    route: dict[str, Record],
) -> None:
    states = states_merge(route, now=NOW).values()
    if any(state.panic for state in states):
        serving = (Label.HEALTHY, Label.SUSPECT, Label.EJECTED, Label.QUARANTINED)
        assert all(state.panic for state in states if state.label in serving)
        assert not any(state.trial for state in states)
    assert not any(state.trial and state.eligible for state in states)
