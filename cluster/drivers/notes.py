"""What a node remembers of a replica from one reconcile to the next, as a file.

The row in the database knows the process; here stands how it fares, so that the
node goes on while Redis is away.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from cluster.health import Process, ProcessAxis


class Notes(msgspec.Struct, frozen=True):
    """``axis`` speaks of the process ``pid``; ``log_start`` is where its log begins.

    ``start`` is the mark of the last start, ``tried_for`` the wanted start that it
    was made for. ``cgroup`` is its control group, empty without a memory limit.
    ``clock_offset_s`` is by how much the node's clock was off at the last start.
    """

    axis: ProcessAxis = ProcessAxis(Process.STOPPED, 0.0)
    pid: int = 0
    start: str = ""
    tried_for: int = 0
    log_start: int = 0
    cgroup: str = ""
    clock_offset_s: float = 0.0


def published(axis: ProcessAxis, clock_offset_s: float) -> ProcessAxis:
    """The axis with its times as the rest of the cluster tells them.

    The offset is that of the last start, whatever the clock does meanwhile: the
    start's time also says which process is meant, and must not move with it.
    """

    def moved(moment: float) -> float:
        return round(moment - clock_offset_s, 3) if moment else moment

    return msgspec.structs.replace(
        axis, since=moved(axis.since), next_try=moved(axis.next_try)
    )


def notes_read(path: Path) -> Notes:
    """The notes; fresh ones when there are none or they cannot be read."""
    with suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=Notes)
    return Notes()


def notes_write(path: Path, notes: Notes) -> None:
    """Replace the file as a whole: a crash leaves the old notes or the new ones."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(msgspec.json.encode(notes))
    fresh.replace(path)
