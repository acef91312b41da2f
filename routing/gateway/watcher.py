"""The snapshot this gateway serves by: swapped whole, never backwards."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import cast

import msgspec

from routing.balance.router import Router
from routing.balance.state import ReplicaStates
from routing.contracts import names
from routing.contracts.snapshot import (
    SchemaUnknown,
    Snapshot,
    snapshot_decode,
)
from routing.gateway.key_file import file_replace
from routing.gateway.redis_link import RedisLink

log = logging.getLogger(__name__)


class Watcher:
    """Holds the current router, and brings it up to date when told of a revision."""

    def __init__(self, link: RedisLink, states: ReplicaStates, path: Path) -> None:
        self._link = link
        self._states = states
        self._path = path
        self._keeping = asyncio.Lock()
        self._unkept: list[bytes] = []
        # The last (epoch, revision) whose body could not be used.
        self._unusable = (0, 0)
        self.router: Router | None = None
        self.snapshot: Snapshot | None = None
        self.applied_at = 0.0
        self.ignored = 0

    @property
    def current(self) -> tuple[int, int]:
        return (self.router.epoch, self.router.revision) if self.router else (0, 0)

    def load(self) -> None:
        """Serve by what was applied last, before Redis was asked."""
        try:
            body = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("the last snapshot cannot be read: %s", error)
            return
        self._apply(body, "the file")

    async def follow(self, published: tuple[int, int]) -> bytes | None:
        """Fetch and apply the published revision if it is newer than the current
        one; its body when it was applied. Redis errors are the caller's."""
        if published <= self.current or published == self._unusable:
            return None
        body = cast("bytes | None", await self._link.client.get(names.SNAPSHOT_BODY))
        if body is None:
            return None
        if not self._apply(body, "Redis"):
            self._unusable = published
            return None
        return body

    async def keep(self, body: bytes) -> None:
        """Put the applied revision on disk, for a start without Redis.

        One at a time, and of those that wait only the newest: two writers of one
        process would share their temporary file.
        """
        self._unkept.append(body)
        async with self._keeping:
            if not self._unkept:
                return
            newest = self._unkept[-1]
            self._unkept.clear()
            try:
                await asyncio.to_thread(self._replace, newest)
            except OSError as error:
                log.warning("the snapshot is not kept on disk: %s", error)

    def _apply(self, body: bytes, source: str) -> bool:
        try:
            snapshot = snapshot_decode(body)
        except (SchemaUnknown, msgspec.DecodeError, UnicodeDecodeError) as error:
            self.ignored += 1
            log.error("a snapshot from %s is not used: %s", source, error)
            return False
        if (snapshot.epoch, snapshot.revision) <= self.current:
            return False
        router = Router.compile(snapshot, self._states)
        self.router, self.snapshot = router, snapshot
        self.applied_at = time.time()
        self._states.keep(router.members())
        log.info("revision %d of epoch %d applied", snapshot.revision, snapshot.epoch)
        return True

    def _replace(self, body: bytes) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file_replace(self._path, body)
