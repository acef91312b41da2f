"""From a live record to one state: the only place that decides it."""

from __future__ import annotations

import enum

import msgspec

from cluster.health.record import Admin, Probe, Process, Record


class Label(enum.StrEnum):
    """The one word shown for a replica."""

    REGISTERED = "registered"
    STARTING = "starting"
    LOADING = "loading"
    HEALTHY = "healthy"
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
    PROBE_OK = "probe_ok"
    PROBE_FAILED = "probe_failed"


class State(msgspec.Struct, frozen=True):
    """``eligible`` says whether the router may choose the replica.

    ``since`` and ``next_try`` are Unix seconds, 0 when not known or not planned;
    ``detail`` is the evidence in the words of whoever saw it.
    """

    label: Label
    cause: Cause
    eligible: bool
    since: float = 0.0
    detail: str = ""
    next_try: float = 0.0


def state_merge(record: Record) -> State:
    """The state of a replica, from what people want down to what the probe saw.

    Stopped and failing processes come before the admin's wish, because a drained
    replica that died is news; the probe speaks only where a process may answer.
    """
    admin, process, probe = record.admin, record.process, record.probe
    if process is not None and process.state is not Process.RUNNING:
        label, cause = {
            Process.STOPPED: (Label.STOPPED, Cause.PROCESS_STOPPED),
            Process.STARTING: (Label.STARTING, Cause.PROCESS_STARTING),
            Process.STOPPING: (Label.STOPPING, Cause.PROCESS_STOPPING),
            Process.EXITED: (Label.DOWN, Cause.PROCESS_EXITED),
            Process.FAILED: (Label.FAILED, Cause.START_FAILED),
        }[process.state]
        return State(
            label=label,
            cause=cause,
            eligible=False,
            since=process.since,
            detail=process.detail or process.reason,
            next_try=process.next_try,
        )
    if admin is not None and admin.state is Admin.DISABLED:
        return State(Label.DISABLED, Cause.ADMIN_DISABLED, False, admin.since)
    if admin is not None and admin.state is Admin.DRAINING:
        return State(Label.DRAINING, Cause.ADMIN_DRAINING, False, admin.since)
    if process and probe and probe.process_since != process.since:
        probe = None
    if probe is None or probe.state is Probe.UNKNOWN:
        if process is not None:
            return State(Label.LOADING, Cause.NOT_PROBED, False, process.since)
        return State(Label.REGISTERED, Cause.NOT_PROBED, False)
    label, cause, eligible = {
        Probe.LOADING: (Label.LOADING, Cause.PROBE_LOADING, False),
        Probe.UP: (Label.HEALTHY, Cause.PROBE_OK, True),
        Probe.DOWN: (Label.DOWN, Cause.PROBE_FAILED, False),
    }[probe.state]
    return State(label, cause, eligible, probe.since, probe.detail or probe.reason)
