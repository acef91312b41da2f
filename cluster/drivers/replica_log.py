"""The log of a replica: whatever its process writes."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

LIMIT_BYTES = 16 * 1024 * 1024
_TAIL_BYTES = 4096
_TAIL_CHARS = 400


SCARCE_LIMIT_BYTES = 1024 * 1024


def log_trim(path: Path, *, disk_is_scarce: bool = False) -> None:
    """Move an overlong log aside, in place: the process keeps its open file.

    Where the disk is nearly full, less is kept and nothing is moved aside.

    It appends, so it goes on at the new end; lines written between the copy and
    the cut are lost.
    """
    aside = path.with_name(f"{path.name}.1")
    if disk_is_scarce:
        aside.unlink(missing_ok=True)
    limit = SCARCE_LIMIT_BYTES if disk_is_scarce else LIMIT_BYTES
    with suppress(FileNotFoundError):
        if path.stat().st_size <= limit:
            return
        if not disk_is_scarce:
            shutil.copyfile(path, aside)
        with path.open("r+b") as file:
            file.truncate(0)


def log_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def log_tail(path: Path, *, start: int = 0) -> str:
    """The last whole lines after byte ``start``, as one printable line; or nothing."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(min(start, size), size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return ""
    tail = ""
    for line in reversed(lines):
        text = " ".join("".join(c if c.isprintable() else " " for c in line).split())
        longer = f"{text} / {tail}" if tail and text else text or tail
        if len(longer) > _TAIL_CHARS:
            return tail or text[:_TAIL_CHARS]
        tail = longer
    return tail
