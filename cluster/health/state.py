"""From live records to states: the only place that decides them.

A replica is judged among those of its model, because how many may be out at once
is a question of the route: never so many that less than half would carry it all.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import msgspec

from cluster.health.load import Load
from cluster.health.passive import passive_of
from cluster.health.probing import DEEP_PROBE_FAILED, WARMUP_FAILED
from cluster.health.record import (
    Admin,
    NodeReach,
    Passive,
    PassiveAxis,
    Probe,
    ProbeAxis,
    Process,
    ProcessAxis,
    Record,
)

# Of one route at most one replica comes back in so many seconds, so that what
# failed under load is not given all of it again at once.
LEAVE_EVERY_S = 5.0
# Waiting requests and share of the KV cache from which an engine counts as full.
WAITING_FULL = 5.0
KV_CACHE_FULL = 0.8
_LOAD_FRESH_S = 60.0
# Reasons of a failed probe that leave a doubt; the others prove that a request
# would fail as well (refused, another model, not an engine at all).
_DOUBTFUL = frozenset({"timeout", "connection_lost", "http_status", DEEP_PROBE_FAILED})


class Label(enum.StrEnum):
    """The one word shown for a replica."""

    REGISTERED = "registered"
    STARTING = "starting"
    LOADING = "loading"
    WARMING = "warming"
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    EJECTED = "ejected"
    HALF_OPEN = "half_open"
    QUARANTINED = "quarantined"
    UNREACHABLE = "unreachable"
    DOWN = "down"
    FAILED = "failed"
    DRAINING = "draining"
    DISABLED = "disabled"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Cause(enum.StrEnum):
    """Why it is in that state; stable codes, translated where they are shown."""

    NOT_PROBED = "not_probed"
    ADMIN_DISABLED = "admin_disabled"
    ADMIN_DRAINING = "admin_draining"
    PROCESS_STOPPED = "process_stopped"
    PROCESS_STOPPING = "process_stopping"
    PROCESS_STARTING = "process_starting"
    PROCESS_EXITED = "process_exited"
    START_FAILED = "start_failed"
    PROBE_LOADING = "probe_loading"
    PROBE_WARMING = "probe_warming"
    WARMUP_FAILED = "warmup_failed"
    PROBE_OK = "probe_ok"
    PROBE_MISSED = "probe_missed"
    PROBE_FAILED = "probe_failed"
    DEEP_PROBE_FAILED = "deep_probe_failed"
    NODE_SILENT = "node_silent"
    # What gateways saw in the requests they forwarded.
    FAILURES_IN_A_ROW = "failures_in_a_row"
    FAILURE_SHARE = "failure_share"
    TRIAL_FAILED = "trial_failed"
    HANG = "hang"
    PASSIVE = "passive"


class State(msgspec.Struct, frozen=True):
    """``eligible`` says whether the router may choose the replica, ``trial`` whether
    it may send one request at a time there to see, ``last_choice`` whether it does
    so only when no other is there.

    ``kept`` is an ejection that is not carried out because too few would be left;
    ``panic`` says that the route is short of replicas and uses doubtful ones.
    ``saturated`` is the engine's own word. ``since``, ``next_try`` and
    ``recovered_at`` (the beginning of a slow start) are Unix seconds, 0 when not
    known or not planned; ``detail`` is the evidence in the words of whoever saw it.
    """

    label: Label
    cause: Cause
    eligible: bool
    since: float = 0.0
    detail: str = ""
    next_try: float = 0.0
    panic: bool = False
    saturated: bool = False
    trial: bool = False
    kept: bool = False
    last_choice: bool = False
    recovered_at: float = 0.0


class _Draft(msgspec.Struct, frozen=True):
    """A state by the replica's own record, and its part in the route.

    ``member``: it is enabled and has been in rotation, so it counts among those
    that should carry the route. ``out``: only this ejection keeps it from serving.
    ``usable``: it may still answer, should the others be too few.
    """

    state: State
    member: bool = False
    out: PassiveAxis | None = None
    usable: bool = False


def state_merge(record: Record, *, now: float, load: Load | None = None) -> State:
    """The state of a replica that is the only one of its model."""
    loads = {} if load is None else {"": load}
    return states_merge({"": record}, now=now, loads=loads)[""]


def states_merge(
    records: Mapping[str, Record],
    *,
    now: float,
    loads: Mapping[str, Load] | None = None,
) -> dict[str, State]:
    """The states of all replicas of one model by id; their order does not matter.

    ``now`` is in Unix seconds by Redis's clock.
    """
    drafts = {id_: _draft(record, now) for id_, record in records.items()}
    states = {id_: draft.state for id_, draft in drafts.items()}
    members = {id_: draft for id_, draft in drafts.items() if draft.member}
    if any(not draft.state.eligible for draft in members.values()):
        states |= _members_merge(members, records, now)
    if loads:
        for id_ in states.keys() & loads.keys():
            if _is_saturated(loads[id_], now):
                states[id_] = msgspec.structs.replace(states[id_], saturated=True)
    return states


# One record ------------------------------------------------------------------


def _draft(record: Record, now: float) -> _Draft:
    """From what people want down to what requests met.

    Stopped and failing processes come before the admin's wish, because a drained
    replica that died is news; the probe speaks only where a process may answer.
    """
    admin, process, probe = record.admin, record.process, record.probe
    enabled = admin is None or admin.state is Admin.ENABLED
    if process is not None and process.state is not Process.RUNNING:
        died = process.state in (Process.EXITED, Process.FAILED)
        rotated = probe is not None and probe.state in _ROTATED
        return _Draft(_of_process(process), member=enabled and died and rotated)
    if admin is not None and not enabled:
        label, cause = _OF_ADMIN[admin.state]
        return _Draft(State(label, cause, False, admin.since))
    if probe is not None and record.is_stale(probe):
        probe = None
    if probe is None or probe.state is Probe.UNKNOWN:
        return _Draft(_silent(record, _not_probed(process)))
    state = _of_probe(probe)
    if probe.state not in _ROTATED:
        return _Draft(_silent(record, state))
    if not state.eligible:
        usable = probe.reason in _DOUBTFUL
        return _Draft(_silent(record, state), member=True, usable=usable)
    return _with_passive(record, state, now)


_ROTATED = (Probe.UP, Probe.SUSPECT, Probe.DOWN)
_OF_ADMIN = {
    Admin.DISABLED: (Label.DISABLED, Cause.ADMIN_DISABLED),
    Admin.DRAINING: (Label.DRAINING, Cause.ADMIN_DRAINING),
}
_OF_PROCESS = {
    Process.STOPPED: (Label.STOPPED, Cause.PROCESS_STOPPED),
    Process.STARTING: (Label.STARTING, Cause.PROCESS_STARTING),
    Process.STOPPING: (Label.STOPPING, Cause.PROCESS_STOPPING),
    Process.EXITED: (Label.DOWN, Cause.PROCESS_EXITED),
    Process.FAILED: (Label.FAILED, Cause.START_FAILED),
}
_OF_PROBE = {
    Probe.LOADING: (Label.LOADING, Cause.PROBE_LOADING, False),
    Probe.WARMING: (Label.WARMING, Cause.PROBE_WARMING, False),
    Probe.UP: (Label.HEALTHY, Cause.PROBE_OK, True),
    Probe.SUSPECT: (Label.SUSPECT, Cause.PROBE_MISSED, True),
    Probe.DOWN: (Label.DOWN, Cause.PROBE_FAILED, False),
}
_BY_REASON = {
    DEEP_PROBE_FAILED: Cause.DEEP_PROBE_FAILED,
    WARMUP_FAILED: Cause.WARMUP_FAILED,
}


def _of_process(process: ProcessAxis) -> State:
    label, cause = _OF_PROCESS[process.state]
    detail = process.detail or process.reason
    return State(label, cause, False, process.since, detail, process.next_try)


def _not_probed(process: ProcessAxis | None) -> State:
    if process is not None:
        return State(Label.LOADING, Cause.NOT_PROBED, False, process.since)
    return State(Label.REGISTERED, Cause.NOT_PROBED, False)


def _of_probe(probe: ProbeAxis) -> State:
    label, cause, eligible = _OF_PROBE[probe.state]
    cause = _BY_REASON.get(probe.reason, cause)
    return State(label, cause, eligible, probe.since, probe.detail or probe.reason)


def _silent(record: Record, state: State) -> State:
    """Nobody hears of its node: that is said, and changes nothing else."""
    node = record.node
    if node is None or node.state is not NodeReach.UNREACHABLE:
        return state
    return msgspec.structs.replace(
        state, label=Label.UNREACHABLE, cause=Cause.NODE_SILENT, since=node.since
    )


def _with_passive(record: Record, state: State, now: float) -> _Draft:
    """A replica that the probe finds able to serve, with what requests met."""
    passive = passive_of(record)
    state = _silent(record, state)
    if passive is None:
        return _Draft(state, member=True, usable=True)
    if passive.state in (Passive.EJECTED, Passive.QUARANTINED):
        ejected = msgspec.structs.replace(
            _by_passive(passive),
            label=Label(passive.state.value),
            eligible=False,
            next_try=passive.until,
        )
        return _Draft(ejected, member=True, out=passive, usable=True)
    if passive.state is Passive.SUSPECT and now < passive.until:
        suspect = msgspec.structs.replace(_by_passive(passive), last_choice=True)
        return _Draft(suspect, member=True, usable=True)
    state = msgspec.structs.replace(state, recovered_at=passive.recovered_at)
    return _Draft(state, member=True, usable=True)


def _by_passive(passive: PassiveAxis) -> State:
    """Suspect by the gateways' word, and chosen all the same."""
    known = passive.cause in Cause.__members__.values()
    cause = Cause(passive.cause) if known else Cause.PASSIVE
    return State(Label.SUSPECT, cause, True, passive.since, passive.detail)


# All records of a model ------------------------------------------------------


def _members_merge(
    members: Mapping[str, _Draft], records: Mapping[str, Record], now: float
) -> dict[str, State]:
    """The states of those that should carry the route, some of whom cannot."""
    states = {id_: draft.state for id_, draft in members.items()}
    trusted = sum(state.eligible for state in states.values())
    outs = {id_: draft.out for id_, draft in members.items() if draft.out}
    # The oldest first, and before them those that time alone does not bring back.
    order = sorted(
        outs,
        key=lambda id_: (
            outs[id_].state is not Passive.QUARANTINED,
            outs[id_].since,
            id_,
        ),
    )
    minimum = max(1, -(-len(members) // 2))
    carried_out = max(0, len(order) - max(0, minimum - trusted))
    kept = order[carried_out:]
    for id_ in kept:
        states[id_] = msgspec.structs.replace(_by_passive(outs[id_]), kept=True)
    carried = {id_: outs[id_] for id_ in order[:carried_out]}
    states |= _half_opened(states, carried, records.values(), now)
    eligible = trusted + len(kept)
    if 2 * eligible < len(members) or (kept and not trusted):
        _panic(states, members)
    return states


def _half_opened(
    states: Mapping[str, State],
    ejections: Mapping[str, PassiveAxis],
    records: Iterable[Record],
    now: float,
) -> dict[str, State]:
    """Those whose time is over, one every five seconds, and when the others are due."""
    last = max((_came_back_at(record) for record in records), default=0.0)
    found: dict[str, State] = {}
    due = {id_: e for id_, e in ejections.items() if e.state is Passive.EJECTED}
    for id_, ejection in sorted(due.items(), key=lambda item: (item[1].until, item[0])):
        last = max(ejection.until, last + LEAVE_EVERY_S if last else 0.0)
        state = msgspec.structs.replace(states[id_], next_try=last)
        if last <= now:
            state = msgspec.structs.replace(
                state, label=Label.HALF_OPEN, trial=True, since=last, next_try=0.0
            )
        found[id_] = state
    return found


def _came_back_at(record: Record) -> float:
    passive = passive_of(record)
    return passive.recovered_at if passive is not None else 0.0


def _panic(states: dict[str, State], members: Mapping[str, _Draft]) -> None:
    """Trying beats refusing: whatever may still answer is used, with equal right."""
    for id_, draft in members.items():
        state = states[id_]
        states[id_] = msgspec.structs.replace(
            state, panic=True, trial=False, eligible=state.eligible or draft.usable
        )


def _is_saturated(load: Load, now: float) -> bool:
    waiting, kv_cache = load.waiting or 0.0, load.kv_cache or 0.0
    full = waiting >= WAITING_FULL or kv_cache >= KV_CACHE_FULL
    return full and abs(now - load.at) < _LOAD_FRESH_S
