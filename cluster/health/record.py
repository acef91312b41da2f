"""The live record of a replica: a Redis hash with one field per axis.

Axes are written by different processes and never by two, so each is its own
field and no write can undo another's. Times are Unix seconds.
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
    UNKNOWN = "unknown"
    LOADING = "loading"
    UP = "up"
    DOWN = "down"


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


AXES: dict[str, type[msgspec.Struct]] = {
    "admin": AdminAxis,
    "process": ProcessAxis,
    "probe": ProbeAxis,
}

_Axis = TypeVar("_Axis", AdminAxis, ProcessAxis, ProbeAxis)


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
    )
