"""What a node says of itself, and whether it is heard of.

One Redis hash per node, ``node_name``: ``at`` is when Redis took the last heartbeat,
by the clock of Redis; ``holder`` says which installation of the node sent it, and
``facts`` holds JSON ``NodeFacts``; ``rival`` and ``rival_at`` are the same of the last
installation that was refused the name. Ages are differences of two readings of that one
clock, so that no clock of a node or of the control plane is ever compared with
another: a clock that is an hour off is a fact to show, and nothing else.
"""

from __future__ import annotations

import enum

import msgspec

HEARTBEAT_S = 10.0
# Some heartbeats may be lost; so long a silence is none of those.
SILENT_S = 45.0
KEPT_S = 3 * 86_400
# For so long it is shown that another machine was refused the name of a node.
RIVAL_SHOWN_S = 600.0
# More than the network or a busy machine explains.
CLOCK_OFF_S = 2.0

_GIB = 1024.0
_SCARCE = (0.05, 5 * _GIB)
_FULL = (0.01, 0.2 * _GIB)


def node_name(name: str) -> str:
    return f"sluice:node:{name}"


class NodeState(enum.StrEnum):
    """``NEVER_SEEN``: not in the three days that a heartbeat is kept, or never."""

    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    NEVER_SEEN = "never_seen"


class Disk(enum.StrEnum):
    OK = "ok"
    SCARCE = "scarce"
    FULL = "full"


class Gpu(msgspec.Struct, frozen=True):
    """None is what the card does not tell."""

    index: int
    name: str
    uuid: str
    memory_total_mb: float | None = None
    memory_used_mb: float | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


class NodeFacts(msgspec.Struct, frozen=True):
    """``host`` is where gateways reach the node's replicas; sizes are MiB.

    ``clock_offset_s`` is by how much the node's clock is ahead of that of Redis.
    ``gpus_absent`` is a code that says why no GPU is shown; empty where any is.
    ``disk`` is that of the data directory.
    """

    host: str
    hostname: str
    boot_id: str
    pid: int
    versions: dict[str, str]
    clock_offset_s: float
    cpu_count: int
    load_1m: float
    memory_total_mb: float
    memory_available_mb: float
    disk_total_mb: float
    disk_free_mb: float
    gpus: list[Gpu] = []
    gpus_absent: str = ""

    @property
    def clock_is_off(self) -> bool:
        return abs(self.clock_offset_s) > CLOCK_OFF_S

    @property
    def disk(self) -> Disk:
        return disk_level(self.disk_free_mb, self.disk_total_mb)


def node_state(at: float | None, now: float) -> NodeState:
    """The state of a node whose last heartbeat was at ``at``, by the same clock."""
    if at is None:
        return NodeState.NEVER_SEEN
    silent = now - at >= SILENT_S
    return NodeState.UNREACHABLE if silent else NodeState.REACHABLE


def disk_level(free_mb: float, total_mb: float) -> Disk:
    """A share on small disks, an amount on large ones."""
    for level, (share, amount_mb) in ((Disk.FULL, _FULL), (Disk.SCARCE, _SCARCE)):
        if free_mb < min(share * total_mb, amount_mb):
            return level
    return Disk.OK


def facts_decode(raw: bytes | None) -> NodeFacts | None:
    """Facts as read from Redis; None for none and for unreadable ones."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=NodeFacts)
    except msgspec.DecodeError:
        return None
