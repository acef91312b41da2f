"""The log file of one child: JSON lines, wrapped where the child wrote plain text."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

ROTATE_BYTES = 64 * 1024 * 1024


class ChildLog:
    """Appends whole lines; ``last`` is the last one, for the message at its end."""

    def __init__(self, path: Path, *, source: str) -> None:
        self._path = path
        self._source = source
        self._file = self._open()
        self._rest = b""
        self.last = ""

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path, flags, 0o600)

    def open_raw(self) -> int:
        """A descriptor for the child itself, to be closed by the caller."""
        return self._open()

    def rotate(self) -> None:
        """Keep one older file, once this one has grown large.

        The file is copied and emptied, not renamed: a child may hold it open.
        """
        if os.fstat(self._file).st_size < ROTATE_BYTES:
            return
        with contextlib.suppress(OSError):
            shutil.copyfile(self._path, self._path.with_suffix(".log.1"))
            os.ftruncate(self._file, 0)

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._write([line for line in lines if line.strip()])
        if len(self._rest) > ROTATE_BYTES // 64:
            self.flush()

    def flush(self) -> None:
        """Write what came without an end of line."""
        rest, self._rest = self._rest, b""
        if rest.strip():
            self._write([rest])

    def close(self) -> None:
        self.flush()
        os.close(self._file)

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        entries = [self._entry(line) for line in lines]
        try:
            os.write(self._file, b"".join(entry + b"\n" for entry in entries))
        except OSError:
            # A full disk must not take the supervisor down with it.
            return

    def _entry(self, line: bytes) -> bytes:
        text = line.decode("utf-8", "replace").rstrip()
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            self.last = str(parsed.get("message", text))[:200]
            return line.rstrip()
        self.last = text[:200]
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": "info",
            "logger": self._source,
            "message": text,
        }
        return json.dumps(entry, ensure_ascii=False).encode()
