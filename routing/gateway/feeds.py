"""What a gateway learns from Redis: revisions, key changes, replica records.

One poll every half second is the truth; notices over pub/sub only wake it early,
because notices may be lost. Nothing here ever ends the process: while Redis is
away the gateway serves by what it knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec

from cluster import feed
from cluster.health.failures import FAILURES_KEPT_S, failures_name, minute_of
from cluster.health.load import LOADS, load_decode
from cluster.health.patience import hang_after_s
from cluster.health.served import SERVED, SERVED_KEPT_S
from routing.balance.state import ReplicaState, ReplicaStates, Scrape
from routing.contracts import names
from routing.contracts.draws import draws_encode
from routing.contracts.gateway import GatewayRecord
from routing.gateway.auth import Auth, Spawn
from routing.gateway.draws import Draws
from routing.gateway.passive import PassiveHealth
from routing.gateway.redis_link import ANSWER_S, REDIS_ERRORS, RedisLink
from routing.gateway.standings import Standings
from routing.gateway.watcher import Watcher

log = logging.getLogger(__name__)

POLL_S = 0.5
RENEW_S = 1.0
BURST_S = 0.005
BACKOFF_MOST_S = 1.0
_KEYS = feed.feed_names(feed.KEYS)
_REPLICAS = feed.feed_names(feed.REPLICAS)
_NOTICES = (names.SNAPSHOT_NOTICES, _KEYS.notices, _REPLICAS.notices)


class Feeds:
    """The background tasks of one gateway process that face Redis."""

    def __init__(
        self,
        link: RedisLink,
        watcher: Watcher,
        auth: Auth,
        states: ReplicaStates,
        standings: Standings,
        passive: PassiveHealth,
        record: Callable[[], GatewayRecord],
        draws: Draws,
        spawn: Spawn,
    ) -> None:
        self._link = link
        self._spawn = spawn
        self._watcher = watcher
        self._auth = auth
        self._states = states
        self._standings = standings
        self._passive = passive
        self._record = record
        self._draws = draws
        self._wake = asyncio.Event()
        self._keys_number = -1
        self._replicas_number = -1
        self._renew_at = 0.0
        # Until when (monotonic) the times of content have been published.
        self._served_until = 0.0
        self._acknowledged = (0, 0)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.poll()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._wake.wait()
                    # Changes come in bursts; one poll may serve for several.
                    await asyncio.sleep(BURST_S)
            self._wake.clear()

    async def poll(self) -> None:
        """One round; keeps count of whether Redis answers."""
        try:
            async with asyncio.timeout(2 * ANSWER_S):
                await self._round()
        except REDIS_ERRORS as error:
            # Each outage is told once.
            if self._link.up or not self._link.seen_at:
                log.warning("redis does not answer: %s", error)
            self._link.failed()
            self._renew_at = 0.0
            self._standings.blind(True)
        except Exception:
            log.exception("a poll failed")
        self._standings.tick()

    async def listen(self) -> None:
        """Wake the poll at each notice, until cancelled."""
        pause_s = 0.05
        while True:
            try:
                async with self._link.client.pubsub() as pubsub:
                    await pubsub.subscribe(*_NOTICES)
                    self._wake.set()
                    while True:
                        message = await pubsub.get_message(
                            ignore_subscribe_messages=True, timeout=30
                        )
                        pause_s = 0.05
                        if message is not None:
                            self._wake.set()
            except REDIS_ERRORS:
                pass
            except Exception:
                log.exception("listening for notices failed")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, BACKOFF_MOST_S)

    # One round -------------------------------------------------------------------

    async def _round(self) -> None:
        now = time.monotonic()
        pipeline = self._link.client.pipeline(transaction=False)
        pipeline.get(names.SNAPSHOT_REVISION)
        pipeline.get(_KEYS.number)
        pipeline.get(_REPLICAS.number)
        pipeline.time()
        renews = now >= self._renew_at
        quiet = sorted(self._passive.quiet) if renews else []
        if quiet:
            pipeline.zmscore(SERVED, quiet)
            pipeline.hmget(LOADS, quiet)
        scraped = self._scraped() if renews else []
        if scraped:
            pipeline.hmget(LOADS, [state.id for state in scraped])
        failed: dict[ReplicaState, int] = {}
        if renews:
            self._renew(pipeline)
            self._publish_served(pipeline, now)
            failed = self._publish_failures(pipeline)
        (
            revision,
            keys_number,
            replicas_number,
            (seconds, micros),
            *rest,
        ) = await pipeline.execute()
        self._standings.offset_s = seconds + micros / 1e6 - time.time()
        if quiet:
            self._seen_elsewhere(quiet, rest.pop(0))
            self._patience(quiet, rest.pop(0))
        if scraped:
            self._scrapes(scraped, rest.pop(0))
        for state, count in failed.items():
            state.failures -= count
        back = not self._link.up
        self._link.answered()
        if renews:
            self._renew_at = now + RENEW_S - POLL_S / 2
            self._served_until = now
        if back:
            log.info("redis answers")
        self._standings.blind(False)
        if back or renews:
            self._passive.push_unsent()
        await self._follow_keys(_number(keys_number))
        await self._follow_revision(revision)
        await self._follow_replicas(_number(replicas_number), back)

    def _renew(self, pipeline: Any) -> None:
        record = self._record()
        pipeline.set(
            names.gateway(record.id),
            msgspec.json.encode(record),
            ex=names.GATEWAY_LEASE_S,
        )
        pipeline.set(
            names.gateway_draws(record.id),
            draws_encode(self._draws.current(self._watcher.router)),
            ex=names.GATEWAY_LEASE_S,
        )
        pipeline.zadd(names.GATEWAYS, {record.id: time.time()})

    def _publish_served(self, pipeline: Any, now: float) -> None:
        """When each replica last sent content, on Redis's clock; never backwards."""
        redis_now = self._standings.now()
        moments = {
            state.id: round(redis_now - (now - state.last_byte_at), 3)
            for state in self._states.all()
            if state.last_byte_at >= self._served_until > 0
            or (state.last_byte_at and not self._served_until)
        }
        if moments:
            pipeline.zadd(SERVED, moments, gt=True)
            pipeline.zremrangebyscore(SERVED, "-inf", redis_now - SERVED_KEPT_S)

    def _publish_failures(self, pipeline: Any) -> dict[ReplicaState, int]:
        """Add what failed since the last time; the counts that were sent."""
        failed = {s: s.failures for s in self._states.all() if s.failures}
        minute = minute_of(self._standings.now())
        for state, count in failed.items():
            pipeline.hincrby(failures_name(state.id), minute, count)
            pipeline.expire(failures_name(state.id), FAILURES_KEPT_S)
        return failed

    def _seen_elsewhere(self, quiet: list[str], scores: list[float | None]) -> None:
        """What other gateways had from replicas that are silent here."""
        behind_s = self._standings.now() - time.monotonic()
        for replica_id, score in zip(quiet, scores, strict=True):
            if score is not None:
                self._states.get(replica_id).seen_elsewhere_at = score - behind_s

    def _patience(self, quiet: list[str], loads: list[bytes | None]) -> None:
        """How long each of them is waited for; asked for only when it matters."""
        for replica_id, load in zip(quiet, loads, strict=True):
            state = self._states.get(replica_id)
            state.hang_after_s = hang_after_s(load_decode(load))

    def _scraped(self) -> list[ReplicaState]:
        """The replicas that are chosen by what their engines say."""
        return [
            state
            for group in self._states.groups()
            if group.scrapes
            for state in group.states
        ]

    def _scrapes(self, states: list[ReplicaState], loads: list[bytes | None]) -> None:
        behind_s = self._standings.now() - time.monotonic()
        for state, raw in zip(states, loads, strict=True):
            load = load_decode(raw)
            if load is None or load.error:
                state.scrape = None
                continue
            state.scrape = Scrape(
                load.at - behind_s,
                load.running or 0.0,
                load.waiting or 0.0,
                load.kv_cache or 0.0,
            )

    async def _follow_revision(self, raw: bytes | None) -> None:
        published = _revision(raw)
        body = await self._watcher.follow(published)
        current = self._watcher.current
        if body is not None:
            self._standings.follow()
            # Read the records of the replicas that this revision brought.
            self._replicas_number = -1
        if published == current != self._acknowledged:
            await self._acknowledge(current)
        # A Redis that lost the revision has lost its acknowledgements too.
        self._acknowledged = current if published == current else (0, 0)
        if body is not None:
            self._spawn(self._watcher.keep(body))

    async def _acknowledge(self, current: tuple[int, int]) -> None:
        """Say that this gateway serves by the current revision; its record first,
        because whoever hears the notice reads the record."""
        acks = names.acks(*current)
        record = self._record()
        pipeline = self._link.client.pipeline(transaction=False)
        self._renew(pipeline)
        pipeline.hset(acks, record.id, repr(record.applied_at))
        pipeline.expire(acks, names.ACKS_KEPT_S)
        pipeline.publish(names.ACK_NOTICES, f"{current[0]}:{current[1]}")
        await pipeline.execute()

    async def _follow_keys(self, number: int) -> None:
        seen = self._keys_number
        if seen < 0 or number < seen or number == 0:
            self._auth.lost()
        elif number > seen:
            self._auth.forget(await self._changed(_KEYS, seen))
        self._keys_number = number
        self._auth.confirm()

    async def _follow_replicas(self, number: int, back: bool) -> None:
        seen = self._replicas_number
        if number == seen and not back:
            return
        ids = {state.id for state in self._states.all()}
        if not back and 0 <= seen < number:
            ids &= {name for name, _ in await self._changed(_REPLICAS, seen)}
        await self._read_records(sorted(ids))
        self._replicas_number = number

    async def _changed(
        self, feed_names: feed.FeedNames, seen: int
    ) -> list[tuple[str, int]]:
        """The ids that moved since a number, each with its own."""
        raw = await self._link.client.zrangebyscore(
            feed_names.changes, f"({seen}", "+inf", withscores=True
        )
        pairs = cast("list[tuple[bytes, float]]", raw)
        return [(entry_id.decode(), int(number)) for entry_id, number in pairs]

    async def _read_records(self, replica_ids: list[str]) -> None:
        if not replica_ids:
            return
        pipeline = self._link.client.pipeline(transaction=False)
        for replica_id in replica_ids:
            pipeline.hgetall(_REPLICAS.entry(replica_id))
        answers = await pipeline.execute()
        self._standings.read(dict(zip(replica_ids, answers, strict=True)))


def _number(raw: bytes | None) -> int:
    return int(raw) if raw is not None and raw.isdigit() else 0


def _revision(raw: bytes | None) -> tuple[int, int]:
    epoch, _, number = (raw or b"").partition(b":")
    if not (epoch.isdigit() and number.isdigit()):
        return 0, 0
    return int(epoch), int(number)
