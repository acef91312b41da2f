"""The keys that gateways of this machine have seen, on disk, as hashes.

For a worker that starts while Redis is away. Several workers share the file: each
merges what it knows into what it finds, and the newer confirmation wins.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from routing.contracts.keys import KeyEntry
from routing.gateway.auth import Auth

log = logging.getLogger(__name__)


CHECK_S = 1.0
# So often the file is written though nothing changed, so that its confirmations
# stay young.
RENEW_S = 30.0


class _Line(msgspec.Struct):
    entry: KeyEntry
    confirmed_at: float


def keys_read(path: Path) -> list[tuple[KeyEntry, float]]:
    """What stands in the file; nothing when it is missing or unreadable."""
    try:
        lines = msgspec.json.decode(path.read_bytes(), type=list[_Line])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        log.warning("the file of seen keys cannot be read: %s", error)
        return []
    return [(line.entry, line.confirmed_at) for line in lines]


def keys_merge(
    path: Path,
    known: Iterable[tuple[KeyEntry, float]],
    dropped: set[str],
    oldest: float,
) -> None:
    """Write what is known over what stands there, without the dropped ids and what
    was last confirmed before ``oldest``. Raises ``OSError``."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        merged = {
            entry.id: _Line(entry, confirmed_at)
            for entry, confirmed_at in keys_read(path)
            if entry.id not in dropped
        }
        for entry, confirmed_at in known:
            found = merged.get(entry.id)
            if found is None or found.confirmed_at <= confirmed_at:
                merged[entry.id] = _Line(entry, confirmed_at)
        lines = [line for line in merged.values() if line.confirmed_at >= oldest]
        file_replace(path, msgspec.json.encode(lines))


def file_replace(path: Path, body: bytes) -> None:
    """The file has the old content or the new one, whenever the process dies."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


class KeyKeeper:
    """Keeps the file in step with what the process has seen."""

    def __init__(self, auth: Auth, path: Path, grace_s: float) -> None:
        self._auth = auth
        self._path = path
        self._grace_s = grace_s
        self._written = 0
        self._renew_at = 0.0

    def load(self) -> None:
        self._auth.load(keys_read(self._path))

    async def run(self) -> None:
        """Write within a second of a change, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            changes = self._auth.changes
            if changes != self._written or time.monotonic() >= self._renew_at:
                await self._write()
                self._written = changes
                self._renew_at = time.monotonic() + RENEW_S

    async def _write(self) -> None:
        known = self._auth.entries()
        dropped, self._auth.dropped = self._auth.dropped, set()
        oldest = time.time() - self._grace_s
        try:
            await asyncio.to_thread(keys_merge, self._path, known, dropped, oldest)
        except OSError as error:
            self._auth.dropped |= dropped
            log.warning("the keys seen are not kept on disk: %s", error)
