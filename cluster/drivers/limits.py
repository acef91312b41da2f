"""What a process may use of its machine: CPUs, memory, priority.

Set by the version's parameters ``cpus``, ``memory-mb`` and ``nice``. A limit that
cannot be enforced here is a reason not to start: nobody should believe in one that
does nothing. Memory is limited by control group (version 2), since a limit on
address space would count the weights that an engine maps but does not own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from cluster.drivers.spawn import SpawnFailed

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_MIB = 1024 * 1024


class Limits(NamedTuple):
    """None and 0: not limited."""

    cpus: int | None = None
    memory_mb: int | None = None
    nice: int = 0


class Confinement(msgspec.Struct, frozen=True):
    """Limits as the keeper applies them: which CPUs, which control group."""

    cpus: list[int] = []
    cgroup: str = ""
    nice: int = 0


def limits_read(params: Mapping[str, object]) -> Limits:
    """The limits in a version's parameters; raises ``SpawnFailed``."""
    nice = _whole(params, "nice", 0, 19)
    return Limits(
        cpus=_whole(params, "cpus", 1, 4096),
        memory_mb=_whole(params, "memory-mb", 16, 64 * 1024 * 1024),
        nice=0 if nice is None else nice,
    )


def _whole(
    params: Mapping[str, object], name: str, least: int, most: int
) -> int | None:
    value = params.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpawnFailed("bad_param", f"The parameter {name} takes a whole number.")
    if not least <= value <= most:
        text = f"The parameter {name} takes {least} to {most}, not {value}."
        raise SpawnFailed("bad_param", text)
    return value


def confine(limits: Limits, *, group: str, neighbours: Collection[int]) -> Confinement:
    """Prepare the limits for a process that is about to start; raises ``SpawnFailed``.

    ``group`` names its control group, ``neighbours`` are the pids of the node's other
    processes.
    """
    return Confinement(
        cpus=[] if limits.cpus is None else cpus_choose(limits.cpus, neighbours),
        cgroup=""
        if limits.memory_mb is None
        else str(cgroup_prepare(cgroup_base(), group, limits.memory_mb)),
        nice=limits.nice,
    )


def cpus_choose(count: int, neighbours: Collection[int]) -> list[int]:
    """``count`` of our CPUs, those first that the fewest neighbours are bound to."""
    if not hasattr(os, "sched_getaffinity"):
        raise _unenforceable("This system does not bind processes to CPUs.")
    ours = os.sched_getaffinity(0)
    if count > len(ours):
        text = f"The version asks for {count} CPUs; this node has {len(ours)}."
        raise _unenforceable(text)
    used: Counter[int] = Counter()
    for pid in neighbours:
        with suppress(OSError):
            bound = os.sched_getaffinity(pid)
            if bound != ours:
                used.update(bound)
    return sorted(sorted(ours, key=lambda cpu: (used[cpu], cpu))[:count])


def cgroup_base(*, root: Path = _CGROUPS, own: Path = _OWN_CGROUP) -> Path:
    """The control group below which we may make limited ones; ``SpawnFailed`` if
    there is none.

    A group that holds processes cannot limit children, so ours is made beside the
    worker's own, which its parent must allow: under systemd with ``Delegate=memory``.
    """
    if not (root / "cgroup.controllers").is_file():
        raise _unenforceable(
            "The parameter memory-mb needs control groups version 2, which this node "
            "does not have."
        )
    path = next(
        line.removeprefix("0::").strip("/")
        for line in own.read_text().splitlines()
        if line.startswith("0::")
    )
    base = (root / path).parent if path else root
    enabled = (base / "cgroup.subtree_control").read_text().split()
    if "memory" not in enabled or not os.access(base, os.W_OK):
        raise _unenforceable(
            "The parameter memory-mb needs a control group that this worker may "
            f"divide; {base} is none (under systemd: Delegate=memory)."
        )
    return base


def cgroup_prepare(base: Path, name: str, memory_mb: int) -> Path:
    """A fresh control group with this much memory and no swap."""
    group = base / name
    try:
        with suppress(OSError):
            # What it counted belongs to the last process.
            group.rmdir()
        group.mkdir(exist_ok=True)
        (group / "memory.max").write_text(str(memory_mb * _MIB))
        # The process and its children end together, not one without the other.
        (group / "memory.oom.group").write_text("1")
        with suppress(OSError):
            (group / "memory.swap.max").write_text("0")
    except OSError as error:
        raise _unenforceable(f"The memory limit cannot be set: {error}.") from error
    return group


def cgroup_remove(group: str) -> None:
    """Drop a control group that nothing runs in any more; one in use stays."""
    with suppress(OSError):
        Path(group).rmdir()


def cgroup_overrun(group: str) -> bool:
    """Whether the kernel ended processes of this group for their memory."""
    try:
        events = (Path(group) / "memory.events").read_text().split()
    except OSError:
        return False
    counts = dict(zip(events[::2], events[1::2], strict=False))
    return counts.get("oom_kill", "0") != "0"


def _unenforceable(detail: str) -> SpawnFailed:
    return SpawnFailed("limit_unenforceable", detail)
