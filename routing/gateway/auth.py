"""Who calls: the key of a request, checked against entries that live in Redis.

An entry is read on first use and kept. The change feed drops entries that moved,
and entries older than 30 s are read again beside the traffic. While Redis does not
answer, or has lost its data, keys that were seen stay good for a grace time.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

import msgspec

from cluster import feed
from routing.contracts.keys import KeyEntry, key_decode, key_matches, key_public_id
from routing.gateway.errors import (
    Problem,
    Refusal,
    auth_unavailable,
    invalid_api_key,
)
from routing.gateway.redis_link import ANSWER_S, REDIS_ERRORS, RedisLink

log = logging.getLogger(__name__)

CACHE_KEYS = 100_000
# Ids that Redis does not know are remembered shortly, so that guessing costs it
# little, and apart, so that guesses push no real key out.
UNKNOWN_KEYS = 10_000
UNKNOWN_S = 1.0
REREAD_S = 30.0
_NAMES = feed.feed_names(feed.KEYS)

# The same few texts come again and again.
_public_id = functools.lru_cache(maxsize=16_384)(key_public_id)

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
Verdict = KeyEntry | Problem


class Seen:
    """One key this process knows.

    ``confirmed_at`` is when Redis last stood behind the entry, in Unix seconds, as
    far as no later poll did; ``number`` the feed's change number when it was read,
    so that it holds every change up to that one; ``text`` the exact text that
    passed the check; ``lost`` that Redis lost its data since, so that it must be
    asked again.
    """

    __slots__ = ("confirmed_at", "entry", "lost", "number", "read_at", "text")

    def __init__(self, entry: KeyEntry, confirmed_at: float, number: int) -> None:
        self.entry = entry
        self.confirmed_at = confirmed_at
        self.number = number
        self.read_at = time.monotonic()
        self.text = ""
        self.lost = False


class Auth:
    """Checks keys, from memory wherever that is right."""

    def __init__(self, link: RedisLink, grace_s: float, spawn: Spawn) -> None:
        self._link = link
        self._grace_s = grace_s
        self._spawn = spawn
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._unknown: dict[str, float] = {}
        self._lookups: dict[str, list[tuple[str, Callable[[Verdict], None]]]] = {}
        # Changes heard of while the entry was being looked up.
        self._overtaken: dict[str, int] = {}
        self._polled_at = 0.0
        # What the file of seen keys must learn: moved by everything but traffic.
        self.dropped: set[str] = set()
        self.changes = 0

    # Requests ------------------------------------------------------------------

    def check(self, text: str) -> KeyEntry | None:
        """The entry of a good key; None when it must be looked up.

        Raises ``Refusal``: 401 for a key known to be bad, 503 for one that cannot
        be decided now.
        """
        public_id = _public_id(text)
        if public_id is None:
            raise Refusal(invalid_api_key("The key is missing or has no valid form."))
        seen = self._seen.get(public_id)
        if seen is None:
            if not self._link.up:
                raise Refusal(auth_unavailable())
            if self._unknown.get(public_id, 0.0) > time.monotonic():
                raise Refusal(_unknown())
            return None
        if self._link.up:
            if seen.lost:
                return None
            if time.monotonic() - seen.read_at > REREAD_S:
                seen.read_at = time.monotonic()
                self.look_up(text, _nobody)
        elif not self._in_grace(seen):
            raise Refusal(auth_unavailable())
        self._seen.move_to_end(public_id)
        return _verified(seen, text)

    def look_up(self, text: str, then: Callable[[Verdict], None]) -> None:
        """Ask Redis, once for all who wait for the same key, and tell the verdict."""
        public_id = key_public_id(text)
        assert public_id is not None
        waiting = self._lookups.get(public_id)
        if waiting is not None:
            waiting.append((text, then))
            return
        self._lookups[public_id] = [(text, then)]
        self._spawn(self._answer_waiting(public_id))

    async def _answer_waiting(self, public_id: str) -> None:
        try:
            problem = await self._read(public_id)
            if self._overtaken.pop(public_id, 0) > self._number_of(public_id):
                problem = await self._read(public_id)
        except Exception:
            # Whoever waits must be told, whatever went wrong.
            log.exception("key %s not looked up", public_id)
            problem = auth_unavailable()
        self._overtaken.pop(public_id, None)
        seen = self._seen.get(public_id)
        for text, then in self._lookups.pop(public_id):
            if problem is not None or seen is None:
                then(problem or _unknown())
                continue
            try:
                then(_verified(seen, text))
            except Refusal as refusal:
                then(refusal.problem)

    async def _read(self, public_id: str) -> Problem | None:
        """Bring the cache up to date; the problem that this entry then has."""
        try:
            number, body, complete = await self._fetch(public_id)
        except REDIS_ERRORS as error:
            log.warning("key %s not looked up: %s", public_id, error)
            return self._undecided(public_id)
        if body is None:
            return self._absent(public_id, complete)
        try:
            entry = key_decode(body)
        except msgspec.DecodeError as error:
            log.error("the entry of key %s is unreadable: %s", public_id, error)
            return self._undecided(public_id)
        self._remember(entry, number)
        return None

    async def _fetch(self, public_id: str) -> tuple[int, bytes | None, bool]:
        """All of one moment: Redis may be emptied or filled again meanwhile, and an
        entry that was missing then must not meet a mark that was set since."""
        entry = _NAMES.entry(public_id)
        async with asyncio.timeout(ANSWER_S):
            number, body, complete = cast(
                "list[bytes | None]",
                await self._link.client.mget(_NAMES.number, entry, _NAMES.complete),
            )
        return int(number or 0), body, complete is not None

    def _undecided(self, public_id: str) -> Problem | None:
        """Redis gave no answer: what was known before counts within the grace."""
        seen = self._seen.get(public_id)
        return None if seen and self._in_grace(seen) else auth_unavailable()

    def _absent(self, public_id: str, complete: bool) -> Problem | None:
        if not complete:
            return self._undecided(public_id)
        if self._seen.pop(public_id, None):
            self._note_dropped(public_id)
        if len(self._unknown) >= UNKNOWN_KEYS:
            self._unknown.clear()
        self._unknown[public_id] = time.monotonic() + UNKNOWN_S
        return _unknown()

    def _remember(self, entry: KeyEntry, number: int) -> None:
        public_id = entry.id
        before = self._seen.get(public_id)
        if before is not None and not before.lost and before.number > number:
            return
        seen = self._seen[public_id] = Seen(entry, time.time(), number)
        if before is not None and before.entry.secret_sha256 == entry.secret_sha256:
            seen.text = before.text
        self._seen.move_to_end(public_id)
        if len(self._seen) > CACHE_KEYS:
            self._seen.popitem(last=False)
        if before is None or before.entry != entry:
            self.dropped.discard(public_id)
            self.changes += 1

    def _number_of(self, public_id: str) -> int:
        seen = self._seen.get(public_id)
        return -1 if seen is None else seen.number

    def _in_grace(self, seen: Seen) -> bool:
        confirmed_at = seen.confirmed_at
        if not seen.lost:
            confirmed_at = max(confirmed_at, self._polled_at)
        return time.time() - confirmed_at <= self._grace_s

    # The change feed -----------------------------------------------------------

    def forget(self, changes: Iterable[tuple[str, int]]) -> None:
        """These entries changed, each at that number: drop what is older."""
        for public_id, number in changes:
            self._unknown.pop(public_id, None)
            seen = self._seen.get(public_id)
            if seen is not None and seen.number < number:
                del self._seen[public_id]
                self._note_dropped(public_id)
            if public_id in self._lookups:
                self._overtaken[public_id] = number

    def lost(self) -> None:
        """Redis may have lost or changed anything: ask again before using a key."""
        self._unknown.clear()
        for seen in self._seen.values():
            if not seen.lost:
                seen.confirmed_at = max(seen.confirmed_at, self._polled_at)
                seen.lost = True

    def confirm(self) -> None:
        """A poll saw no further changes: all that is known stands as of now."""
        self._polled_at = time.time()

    def _note_dropped(self, public_id: str) -> None:
        self.dropped.add(public_id)
        self.changes += 1

    # The file of seen keys -----------------------------------------------------

    def load(self, entries: Iterable[tuple[KeyEntry, float]]) -> None:
        """Keys that an earlier process had seen, each with its confirmation."""
        for entry, confirmed_at in entries:
            self._seen[entry.id] = Seen(entry, confirmed_at, -1)

    def entries(self) -> list[tuple[KeyEntry, float]]:
        """What is known now, each with the time that Redis last stood behind it."""
        return [
            (
                seen.entry,
                seen.confirmed_at
                if seen.lost
                else max(seen.confirmed_at, self._polled_at),
            )
            for seen in self._seen.values()
        ]


def _verified(seen: Seen, text: str) -> KeyEntry:
    """The entry if the text is its key and the key is good."""
    entry = seen.entry
    if not (seen.text and hmac.compare_digest(seen.text, text)):
        if not key_matches(entry, text):
            raise Refusal(_unknown())
        seen.text = text
    if not entry.active:
        raise Refusal(invalid_api_key("This key was revoked."))
    if entry.expires_at and entry.expires_at <= time.time():
        raise Refusal(invalid_api_key("This key has expired."))
    return entry


def _unknown() -> Problem:
    return invalid_api_key("This key is not known.")


def _nobody(verdict: Verdict) -> None:
    """For a look-up that only refreshes the cache."""
