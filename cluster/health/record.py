"""The live record of a replica: a Redis hash with one field per axis.

Each axis has one writer and is its own field, so no write can undo another's; only
``passive`` has many, the gateways, who replace it by comparing first. Times are
Unix seconds; those of ``passive`` are Redis's own, because they are compared.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

import msgspec


class Admin(enum.StrEnum):
    ENABLED = "enabled"
    DRAINING = "draining"
    DISABLED = "disabled"


class Process(enum.StrEnum):
    """What the node that should run the replica knows of its process."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    EXITED = "exited"
    FAILED = "failed"


class Probe(enum.StrEnum):
    """``WARMING`` answers but has not completed a first request; ``SUSPECT`` was up
    and missed the last questions, too few yet to call it down."""

    UNKNOWN = "unknown"
    LOADING = "loading"
    WARMING = "warming"
    UP = "up"
    SUSPECT = "suspect"
    DOWN = "down"


class Passive(enum.StrEnum):
    """What the gateways' own requests say of a replica."""

    IN = "in"
    SUSPECT = "suspect"
    EJECTED = "ejected"
    QUARANTINED = "quarantined"


class NodeReach(enum.StrEnum):
    """Whether the node that runs a replica is heard of."""

    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"


class AdminAxis(msgspec.Struct, frozen=True):
    """What people want; written by the services."""

    state: Admin = Admin.ENABLED
    since: float = 0.0


class ProcessAxis(msgspec.Struct, frozen=True, omit_defaults=True):
    """Written by the node. ``next_try`` is when a failed start is tried again."""

    state: Process
    since: float
    reason: str = ""
    detail: str = ""
    next_try: float = 0.0
    restarts: int = 0


class ProbeAxis(msgspec.Struct, frozen=True, omit_defaults=True):
    """Written by the prober. ``reason`` is a code, ``detail`` the evidence.

    ``process_since`` is the start (``ProcessAxis.since``) of the process that was
    probed: what was seen of its predecessor says nothing about it.
    """

    state: Probe
    since: float
    reason: str = ""
    detail: str = ""
    process_since: float = 0.0


class PassiveAxis(msgspec.Struct, frozen=True, omit_defaults=True):
    """Written by the gateways, by the rules of ``cluster.health.passive``.

    ``until`` ends an ejection or a suspicion, ``count`` is the n of its length,
    ``ejections`` the times of the last ones. ``cause`` is a code, ``detail`` the
    evidence, ``said_by`` whoever decided it. ``recovered_at`` is when it came back
    into rotation, 0 where it was never out. ``process_since`` as in ``ProbeAxis``.
    """

    state: Passive
    since: float
    until: float = 0.0
    count: int = 0
    cause: str = ""
    detail: str = ""
    said_by: str = ""
    ejections: tuple[float, ...] = ()
    recovered_at: float = 0.0
    process_since: float = 0.0


class NodeAxis(msgspec.Struct, frozen=True):
    """Written by the scheduler for the replicas that a node runs.

    ``since`` of an unreachable node is when it was last heard of. Its silence says
    nothing of its replicas, which may serve all the same.
    """

    state: NodeReach
    since: float


class Record(msgspec.Struct, frozen=True):
    """What is known of a replica; an axis nobody has written yet is None.

    A static replica has no process axis: nobody here runs it.
    """

    admin: AdminAxis | None = None
    process: ProcessAxis | None = None
    probe: ProbeAxis | None = None
    passive: PassiveAxis | None = None
    node: NodeAxis | None = None

    @property
    def process_since(self) -> float:
        """The start of the process that runs, 0 for a static replica."""
        return self.process.since if self.process is not None else 0.0

    def is_stale(self, axis: ProbeAxis | PassiveAxis) -> bool:
        """Whether the axis speaks of an earlier process than the one that runs."""
        return self.process is not None and axis.process_since != self.process.since


_Axis = TypeVar("_Axis", AdminAxis, ProcessAxis, ProbeAxis, PassiveAxis, NodeAxis)


def _axis(kind: type[_Axis], raw: bytes | None) -> _Axis | None:
    """An axis as read from Redis; an unreadable one counts as not written."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError:
        return None


def record_decode(fields: Mapping[bytes, bytes]) -> Record:
    """The record in a Redis hash; unknown fields are ignored."""
    return Record(
        admin=_axis(AdminAxis, fields.get(b"admin")),
        process=_axis(ProcessAxis, fields.get(b"process")),
        probe=_axis(ProbeAxis, fields.get(b"probe")),
        passive=_axis(PassiveAxis, fields.get(b"passive")),
        node=_axis(NodeAxis, fields.get(b"node")),
    )
