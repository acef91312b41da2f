"""What to do about the process of a replica: one pure step per reconcile."""

from __future__ import annotations

import enum

import msgspec

from cluster.health import Process, ProcessAxis

# Between starts that failed in a row; the last one goes on for ever.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
# A process that ran for this long was well: the next pause is the first again.
SETTLED_S = 60.0
# From SIGTERM to SIGKILL.
STOP_GRACE_S = 10.0


class Act(enum.StrEnum):
    NOTHING = "nothing"
    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"


class Wanted(msgspec.Struct, frozen=True):
    """``start`` is moved by a restart; an older process is replaced. ``grace_s`` is
    how long it may take to end, where that is longer than usual."""

    running: bool
    start: int
    grace_s: float = 0.0


class Seen(msgspec.Struct, frozen=True):
    """What the node finds, and what it remembers of its last step.

    ``began`` is when a living process began. ``started_for`` is the ``Wanted.start``
    that it was started for, ``tried_for`` the one of the last attempt. ``ended_at``
    and the words beside it tell of the end of a dead process, as far as is known.
    """

    axis: ProcessAxis
    alive: bool
    began: float = 0.0
    started_for: int = 0
    tried_for: int = 0
    ended_at: float = 0.0
    reason: str = ""
    detail: str = ""


class Step(msgspec.Struct, frozen=True):
    """The act, and the axis that is true if the act succeeds or there is none."""

    act: Act
    axis: ProcessAxis


def pause_s(restarts: int) -> float:
    """The pause before the start that follows ``restarts`` failures in a row."""
    return PAUSES_S[min(max(restarts, 1), len(PAUSES_S)) - 1]


def decide(wanted: Wanted, seen: Seen, now: float) -> Step:
    """The next step; an axis that stays as it is keeps its ``since``."""
    if seen.alive:
        return _alive(wanted, seen, now)
    if not wanted.running:
        if seen.axis.state is Process.STOPPED:
            return Step(Act.NOTHING, seen.axis)
        return Step(Act.NOTHING, ProcessAxis(Process.STOPPED, now))
    return _dead(wanted, seen, now)


def _alive(wanted: Wanted, seen: Seen, now: float) -> Step:
    axis = seen.axis
    if axis.state is Process.STOPPING:
        # Once told to end it must end, even if it is wanted again meanwhile.
        # Told in the future: the clock was set back, and nobody knows when it was.
        grace_s = max(STOP_GRACE_S, wanted.grace_s)
        overdue = not 0 <= now - axis.since < grace_s
        return Step(Act.KILL if overdue else Act.NOTHING, axis)
    if not wanted.running or seen.started_for < wanted.start:
        return Step(Act.TERMINATE, ProcessAxis(Process.STOPPING, now))
    if axis.state is not Process.RUNNING:
        # The notes are lost, the process is known by its row all the same.
        return Step(Act.NOTHING, running(seen.began))
    if axis.restarts and now - axis.since >= SETTLED_S:
        return Step(Act.NOTHING, msgspec.structs.replace(axis, restarts=0))
    return Step(Act.NOTHING, axis)


def _dead(wanted: Wanted, seen: Seen, now: float) -> Step:
    axis = seen.axis
    if seen.tried_for != wanted.start:
        return Step(Act.START, running(now))
    if axis.state is Process.RUNNING:
        settled = seen.ended_at - axis.since >= SETTLED_S
        restarts = 1 if settled else axis.restarts + 1
        return Step(
            Act.NOTHING,
            ProcessAxis(
                Process.EXITED,
                seen.ended_at,
                seen.reason,
                seen.detail,
                next_try=seen.ended_at + pause_s(restarts),
                restarts=restarts,
            ),
        )
    # Longer than any pause: the clock was set back meanwhile.
    if 0 < axis.next_try - now <= pause_s(axis.restarts):
        return Step(Act.NOTHING, axis)
    return Step(Act.START, running(now, restarts=axis.restarts))


def running(began: float, *, restarts: int = 0) -> ProcessAxis:
    return ProcessAxis(Process.RUNNING, began, restarts=restarts)


def failed(
    before: ProcessAxis, restarts: int, reason: str, detail: str, now: float
) -> ProcessAxis:
    """The axis after a start that could not be made, ``restarts`` tries before it."""
    same = (before.state, before.reason) == (Process.FAILED, reason)
    return ProcessAxis(
        Process.FAILED,
        before.since if same else now,
        reason,
        detail,
        next_try=now + pause_s(restarts + 1),
        restarts=restarts + 1,
    )
