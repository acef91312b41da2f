"""The state of a replica: one table from the live record to what everybody shows."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

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
    State,
    record_decode,
    state_merge,
)

ENABLED = AdminAxis(Admin.ENABLED, 1.0)
DRAINING = AdminAxis(Admin.DRAINING, 2.0)
DISABLED = AdminAxis(Admin.DISABLED, 3.0)
RUNNING = ProcessAxis(Process.RUNNING, 10.0)
UP = ProbeAxis(Probe.UP, 12.0, process_since=10.0)
STATIC_UP = ProbeAxis(Probe.UP, 12.0)
DOWN = ProbeAxis(Probe.DOWN, 13.0, "refused", "nothing listens", 10.0)
LOADING = ProbeAxis(Probe.LOADING, 11.0, "loading", "", 10.0)
OLD_UP = ProbeAxis(Probe.UP, 5.0, process_since=4.0)
EXITED = ProcessAxis(Process.EXITED, 20.0, "signal", "killed", 21.0, 1)
NOW = 1000.0
HEALTHY = State(Label.HEALTHY, Cause.PROBE_OK, True, 12.0)
FAILED = ProcessAxis(Process.FAILED, 20.0, "no_command", "", 25.0, 2)


GONE = NodeAxis(NodeReach.UNREACHABLE, 40.0)
HEARD = NodeAxis(NodeReach.REACHABLE, 40.0)


def passive(state: Passive, **fields: Any) -> PassiveAxis:
    """Of the process that runs."""
    return PassiveAxis(
        state, 980.0, cause="hang", detail="d", process_since=10.0, **fields
    )


@pytest.mark.parametrize(
    ("record", "state"),
    [
        # Static replicas: nobody here runs them.
        (Record(), State(Label.REGISTERED, Cause.NOT_PROBED, False)),
        (Record(ENABLED), State(Label.REGISTERED, Cause.NOT_PROBED, False)),
        (Record(ENABLED, None, STATIC_UP), HEALTHY),
        # An emptied record without an admin's word routes all the same.
        (Record(None, None, STATIC_UP), HEALTHY),
        (
            Record(DRAINING, None, STATIC_UP),
            State(Label.DRAINING, Cause.ADMIN_DRAINING, False, 2.0),
        ),
        (
            Record(DISABLED, None, STATIC_UP),
            State(Label.DISABLED, Cause.ADMIN_DISABLED, False, 3.0),
        ),
        # Processes: the probe counts only for the process that it has seen.
        (Record(ENABLED, RUNNING), State(Label.LOADING, Cause.NOT_PROBED, False, 10.0)),
        (
            Record(ENABLED, RUNNING, OLD_UP),
            State(Label.LOADING, Cause.NOT_PROBED, False, 10.0),
        ),
        (
            Record(ENABLED, RUNNING, LOADING),
            State(Label.LOADING, Cause.PROBE_LOADING, False, 11.0, "loading"),
        ),
        (Record(ENABLED, RUNNING, UP), HEALTHY),
        (
            Record(ENABLED, RUNNING, DOWN),
            State(
                Label.DOWN, Cause.PROBE_FAILED, False, 13.0, "nothing listens", 0, True
            ),
        ),
        (
            Record(ENABLED, None, ProbeAxis(Probe.WARMING, 12.0)),
            State(Label.WARMING, Cause.PROBE_WARMING, False, 12.0),
        ),
        (
            Record(
                ENABLED,
                None,
                ProbeAxis(Probe.LOADING, 12.0, "warmup_failed", "Answered 500."),
            ),
            State(Label.LOADING, Cause.WARMUP_FAILED, False, 12.0, "Answered 500."),
        ),
        (
            Record(ENABLED, None, ProbeAxis(Probe.SUSPECT, 12.0, "timeout", "1 of 3")),
            State(Label.SUSPECT, Cause.PROBE_MISSED, True, 12.0, "1 of 3"),
        ),
        # The only replica that may still answer is used, and that is called panic.
        (
            Record(ENABLED, None, ProbeAxis(Probe.DOWN, 13.0, "timeout", "late")),
            State(Label.DOWN, Cause.PROBE_FAILED, True, 13.0, "late", 0, True),
        ),
        (
            Record(ENABLED, None, ProbeAxis(Probe.DOWN, 13.0, "deep_probe_failed")),
            State(
                *(Label.DOWN, Cause.DEEP_PROBE_FAILED, True, 13.0),
                *("deep_probe_failed", 0, True),
            ),
        ),
        # A dead process is news, whatever an admin wants or a probe once saw.
        (
            Record(DRAINING, EXITED, UP),
            State(Label.DOWN, Cause.PROCESS_EXITED, False, 20.0, "killed", 21.0),
        ),
        (
            Record(DISABLED, FAILED, UP),
            State(Label.FAILED, Cause.START_FAILED, False, 20.0, "no_command", 25.0),
        ),
        (
            Record(ENABLED, ProcessAxis(Process.STOPPED, 9.0), UP),
            State(Label.STOPPED, Cause.PROCESS_STOPPED, False, 9.0),
        ),
        (
            Record(ENABLED, ProcessAxis(Process.STOPPING, 9.0), UP),
            State(Label.STOPPING, Cause.PROCESS_STOPPING, False, 9.0),
        ),
        (
            Record(ENABLED, ProcessAxis(Process.STARTING, 9.0, "", "sum"), UP),
            State(Label.STARTING, Cause.PROCESS_STARTING, False, 9.0, "sum"),
        ),
        # A silent node changes the word, and what the data path does not at all.
        (
            Record(ENABLED, RUNNING, UP, node=GONE),
            State(Label.UNREACHABLE, Cause.NODE_SILENT, True, 40.0),
        ),
        (
            Record(ENABLED, RUNNING, DOWN, node=GONE),
            State(
                *(Label.UNREACHABLE, Cause.NODE_SILENT, False, 40.0),
                *("nothing listens", 0, True),
            ),
        ),
        (
            Record(ENABLED, RUNNING, LOADING, node=GONE),
            State(Label.UNREACHABLE, Cause.NODE_SILENT, False, 40.0, "loading"),
        ),
        (
            Record(DRAINING, RUNNING, UP, node=GONE),
            State(Label.DRAINING, Cause.ADMIN_DRAINING, False, 2.0),
        ),
        (Record(ENABLED, RUNNING, UP, node=HEARD), HEALTHY),
        # What requests met. One replica alone is never taken out.
        (Record(ENABLED, RUNNING, UP, PassiveAxis(Passive.IN, 5.0)), HEALTHY),
        (
            Record(ENABLED, RUNNING, UP, passive(Passive.IN, recovered_at=990.0)),
            msgspec.structs.replace(HEALTHY, recovered_at=990.0),
        ),
        (Record(ENABLED, RUNNING, UP, passive(Passive.SUSPECT, until=999.0)), HEALTHY),
        (
            Record(ENABLED, RUNNING, UP, passive(Passive.SUSPECT, until=1010.0)),
            State(Label.SUSPECT, Cause.HANG, True, 980.0, "d", last_choice=True),
        ),
        (
            Record(ENABLED, RUNNING, UP, passive(Passive.EJECTED, until=1010.0)),
            State(Label.SUSPECT, Cause.HANG, True, 980.0, "d", panic=True, kept=True),
        ),
        (
            Record(ENABLED, RUNNING, UP, passive(Passive.QUARANTINED)),
            State(Label.SUSPECT, Cause.HANG, True, 980.0, "d", panic=True, kept=True),
        ),
        # It speaks of an earlier process.
        (
            Record(ENABLED, RUNNING, UP, PassiveAxis(Passive.EJECTED, 5.0, 1010.0)),
            HEALTHY,
        ),
    ],
)
def test_a_record_means_one_state(record: Record, state: State) -> None:
    assert state_merge(record, now=NOW) == state


def test_only_an_enabled_replica_that_runs_and_answers_is_eligible() -> None:
    admins = [None, *(AdminAxis(state, 1.0) for state in Admin)]
    processes = [None, *(ProcessAxis(state, 10.0) for state in Process)]
    probes = [None, *(ProbeAxis(state, 11.0, process_since=10.0) for state in Probe)]
    for admin, process, probe in itertools.product(admins, processes, probes):
        enabled = admin is None or admin.state is Admin.ENABLED
        runs = process is None or process.state is Process.RUNNING
        answers = probe is not None and probe.state in (Probe.UP, Probe.SUSPECT)
        state = state_merge(Record(admin, process, probe), now=NOW)
        assert state.eligible == (enabled and runs and answers)
        good = state.label in (Label.HEALTHY, Label.SUSPECT)
        assert state.eligible == good


def test_a_record_survives_what_it_does_not_know() -> None:
    fields = {
        b"admin": msgspec.json.encode(ENABLED),
        b"process": b'{"state":"flying","since":1}',
        b"probe": b'{"state":"up","since":12.0,"later":"field"}',
        b"passive": b'{"state":"in","since":3.0,"until":"soon"}',
        b"gpu": b"{}",
    }
    assert record_decode(fields) == Record(ENABLED, None, STATIC_UP)
    assert record_decode({}) == Record()
