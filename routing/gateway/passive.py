"""What the requests of this gateway say of the replicas, and what follows from it.

Every attempt that ends is good, bad or neither. Too many bad ones, or silence where
others speak, put a replica out of rotation: here at once, and for every gateway
through the axis ``passive`` of its live record (``cluster.health.passive``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgspec

from cluster import feed
from cluster.health import Passive, PassiveAxis, Record, record_decode
from cluster.health.passive import cleared, ejected, later, recovered, suspected
from cluster.health.patience import HANG_S
from routing.balance.breaker import FAILURES_IN_A_ROW
from routing.balance.candidates import Candidate
from routing.balance.draw import Rng
from routing.balance.state import (
    HANG_STREAMS,
    Group,
    ReplicaState,
    ReplicaStates,
    Standing,
)
from routing.gateway.auth import Spawn
from routing.gateway.redis_link import ANSWER_S, REDIS_ERRORS, RedisLink
from routing.gateway.standings import Standings

log = logging.getLogger(__name__)

# From the suspicion that a silent replica hangs to the ejection for it.
HANG_EJECT_LATER_S = 10.0
WATCH_S = 1.0
# Content this recent proves that it speaks again.
SPEAKS_S = 2.0
_TRIES = 5
_REPLICAS = feed.feed_names(feed.REPLICAS)

Change = Callable[[Record, float], PassiveAxis | None]


class PassiveHealth:
    """Judges the replicas by what they do, on this gateway's evidence alone."""

    def __init__(
        self,
        states: ReplicaStates,
        standings: Standings,
        link: RedisLink,
        gateway_id: str,
        rng: Rng,
        spawn: Spawn,
    ) -> None:
        self._states = states
        self._standings = standings
        self._link = link
        self._gateway_id = gateway_id
        self._rng = rng
        self._spawn = spawn
        self._pushing: set[str] = set()
        # Silent for so long that it matters what other gateways had from them.
        self.quiet: set[str] = set()
        self.wake_at = 0.0

    # Attempts that ended -----------------------------------------------------------

    def good(self, candidate: Candidate) -> None:
        state = candidate.replica.state
        state.breaker.good(time.monotonic())
        if state.marked:
            self._change(state.id, partial(_after_good, state.standing))

    def bad(self, candidate: Candidate, reason: str) -> None:
        """``reason`` is the word that the outcome carries for this attempt."""
        state, now = candidate.replica.state, time.monotonic()
        state.failures += 1
        cause = state.breaker.bad(now)
        if candidate.trial and state.marked:
            self._eject(state, "trial_failed", f"The trial request failed: {reason}.")
        elif cause == FAILURES_IN_A_ROW:
            count = state.breaker.in_a_row
            detail = f"{count} failures in a row, the last one: {reason}."
            self._eject(state, cause, detail)
        elif cause:
            good, bad = state.breaker.counts(now)
            detail = f"{bad} of {good + bad} requests failed within 30 s."
            self._eject(state, cause, detail)

    def _eject(self, state: ReplicaState, cause: str, detail: str) -> None:
        state.breaker.reset()
        self._change(
            state.id,
            partial(
                _ejected, cause, detail, said_by=self._gateway_id, jitter=self._jitter()
            ),
        )

    def _jitter(self) -> float:
        return self._rng.random()

    # Silence -----------------------------------------------------------------------

    def on_clock(self, now: float) -> None:
        self.wake_at = now + WATCH_S
        self.quiet.clear()
        for group in self._states.groups():
            for state in group.states:
                if state.streams:
                    self._watch(group, state, now)

    def _watch(self, group: Group, state: ReplicaState, now: float) -> None:
        passive = self._standings.record(state.id).passive
        suspect = passive is not None and passive.state is Passive.SUSPECT
        heard_at = max(state.last_byte_at, state.seen_elsewhere_at)
        if suspect and now - heard_at < SPEAKS_S:
            self._change(state.id, partial(_after_good, state.standing))
            return
        since = _waits_since(state, suspect)
        quiet_since = max(heard_at, since)
        if not since or now - quiet_since < HANG_S / 2:
            return
        self.quiet.add(state.id)
        if any(s is not state and s.last_byte_at > quiet_since for s in group.states):
            self._silent(state, now - quiet_since, suspect)

    def _silent(self, state: ReplicaState, quiet_s: float, suspect: bool) -> None:
        """It is silent while others are not."""
        detail = (
            f"No content on {state.streams} open streams for {quiet_s:.0f} s, "
            "while other replicas sent some."
        )
        if quiet_s < state.hang_after_s:
            return
        if state.trial_since:
            self._eject(state, "trial_failed", detail)
        elif quiet_s >= state.hang_after_s + HANG_EJECT_LATER_S:
            self._eject(state, "hang", detail)
        elif not suspect:
            change = partial(_suspected, "hang", detail, said_by=self._gateway_id)
            self._change(state.id, change)

    # Telling the others --------------------------------------------------------------

    def _change(self, replica_id: str, change: Change) -> None:
        """Act upon it here, then write it for everybody."""
        record = self._standings.record(replica_id)
        axis = change(record, self._standings.now())
        if axis is None or axis == record.passive:
            return
        log.warning(
            "replica %s is %s. %s", replica_id, axis.state.value, axis.detail or "Good."
        )
        self._standings.decide(replica_id, axis)
        self._push(replica_id, change, axis)

    def push_unsent(self) -> None:
        """Tell Redis what it has not heard of yet."""
        for replica_id, axis in list(self._standings.own.items()):
            self._push(replica_id, partial(_newer, axis), axis)

    def _push(self, replica_id: str, change: Change, decided: PassiveAxis) -> None:
        if self._link.up and replica_id not in self._pushing:
            self._pushing.add(replica_id)
            self._spawn(self._write(replica_id, change, decided))

    async def _write(
        self, replica_id: str, change: Change, decided: PassiveAxis
    ) -> None:
        """Until it is written, or somebody else's word makes it needless; what cannot
        be written now stays this gateway's own."""
        try:
            async with asyncio.timeout(2 * ANSWER_S):
                for _ in range(_TRIES):
                    done, axis = await self._swap(replica_id, change)
                    if done:
                        self._standings.agree(replica_id, axis, decided)
                        return
        except REDIS_ERRORS as error:
            log.warning("replica %s: not told to the others: %s", replica_id, error)
        finally:
            self._pushing.discard(replica_id)

    async def _swap(
        self, replica_id: str, change: Change
    ) -> tuple[bool, PassiveAxis | None]:
        """Whether Redis now has what it should, and what that is."""
        entry = _REPLICAS.entry(replica_id)
        pipeline: Any = self._link.client.pipeline(transaction=False)
        pipeline.hgetall(entry)
        pipeline.time()
        fields, (seconds, micros) = await pipeline.execute()
        record = record_decode(fields)
        axis = change(record, seconds + micros / 1e6)
        if axis is None or axis == record.passive:
            return True, record.passive
        keys = (entry, _REPLICAS.number, _REPLICAS.changes, _REPLICAS.notices)
        before = fields.get(b"passive", b"")
        values = (replica_id, "passive", before, msgspec.json.encode(axis))
        client = cast("Any", self._link.client)
        return bool(await client.eval(feed.HASH_FIELD_SWAP, 4, *keys, *values)), axis


def _waits_since(state: ReplicaState, suspect: bool) -> float:
    """From when on silence of this replica means something; 0: it does not."""
    if state.trial_since:
        return state.trial_since
    if suspect:
        return state.busy_since
    return 0.0 if state.marked or state.streams < HANG_STREAMS else state.busy_since


# The transitions, as functions of a record and a time by Redis's clock.


def _ejected(
    cause: str,
    detail: str,
    record: Record,
    now: float,
    *,
    said_by: str,
    jitter: float,
) -> PassiveAxis:
    return ejected(
        record.passive,
        cause=cause,
        detail=detail,
        said_by=said_by,
        process_since=record.process_since,
        jitter=jitter,
        now=round(now, 3),
    )


def _suspected(
    cause: str, detail: str, record: Record, now: float, *, said_by: str
) -> PassiveAxis:
    return suspected(
        record.passive,
        cause=cause,
        detail=detail,
        said_by=said_by,
        process_since=record.process_since,
        now=round(now, 3),
    )


def _after_good(was: Standing, record: Record, now: float) -> PassiveAxis | None:
    """An ejection whose time is over ends, a suspicion was wrong."""
    passive = record.passive
    if passive is None:
        return None
    if passive.state is Passive.SUSPECT:
        return cleared(passive, now=round(now, 3))
    was_out = was is not Standing.ELIGIBLE
    return recovered(passive, was_out=was_out, now=round(now, 3))


def _newer(own: PassiveAxis, record: Record, now: float) -> PassiveAxis | None:
    return later(record.passive, own)
