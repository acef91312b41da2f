"""What to do about a replica that drains: one pure step a second."""

from __future__ import annotations

import enum

import msgspec

# How long a gateway may take to hear of a drain, and to say what it has open since.
# Until then, "nothing open" may only mean "not asked yet".
SETTLE_S = 3.0


class DrainAct(enum.StrEnum):
    """``REST``: nothing is open and nothing more is asked. ``CUT``: stop, although
    requests are open or may be."""

    WAIT = "wait"
    REST = "rest"
    STOP = "stop"
    CUT = "cut"


class Drain(msgspec.Struct, frozen=True):
    """Times are Unix seconds of the control plane, 0 where there is none."""

    since: float
    then_stop: bool = False
    deadline: float = 0.0
    drained_at: float = 0.0


class DrainStep(msgspec.Struct, frozen=True):
    act: DrainAct
    drained_at: float


def drain_next(drain: Drain, open_requests: int | None, now: float) -> DrainStep:
    """The next step; ``open_requests`` is None while some gateway does not say."""
    settled = now - drain.since >= SETTLE_S
    drained_at = drain.drained_at if open_requests is None else 0.0
    if settled and open_requests == 0:
        act = DrainAct.STOP if drain.then_stop else DrainAct.REST
        return DrainStep(act, drain.drained_at or now)
    if drain.then_stop and drain.deadline and now >= drain.deadline:
        return DrainStep(DrainAct.CUT, drained_at)
    return DrainStep(DrainAct.WAIT, drained_at)
