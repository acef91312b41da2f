"""Checksums of artifacts, computed once per file and remembered beside the notes."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec


class _Known(msgspec.Struct, frozen=True):
    size: int
    mtime_ns: int
    sha256: str


class ChecksumCache:
    """SHA-256 by path, size and time of change, kept in one file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, _Known] = {}
        with suppress(FileNotFoundError, msgspec.DecodeError):
            self._known = msgspec.json.decode(file.read_bytes(), type=dict[str, _Known])

    def known(self, path: Path) -> str | None:
        """The checksum of the file as it is now; None when it was not computed."""
        entry = self._known.get(str(path))
        stat = path.stat()
        if entry and (entry.size, entry.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
            return entry.sha256
        return None

    def compute(self, path: Path) -> str:
        """Read the whole file, which may take minutes; remember the result."""
        stat = path.stat()
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        self._known[str(path)] = _Known(stat.st_size, stat.st_mtime_ns, sha256)
        fresh = self._file.with_name(f"{self._file.name}.new")
        fresh.write_bytes(msgspec.json.encode(self._known))
        fresh.replace(self._file)
        return sha256
