"""The one producer of live numbers in a console process.

It runs only while somebody watches. Twice a second it asks whether any replica's
record moved, once a second it reads the numbers of what is watched; watchers get
what differs from what they were told before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import NamedTuple, cast

import redis

from cluster import feed
from cluster.health.node import node_state
from cluster.live import redis_client
from cluster.presence import presences_read
from console.live.hub import Hub
from console.live.readings import Reading, Values, readings_read

log = logging.getLogger(__name__)

TICK_S = 0.5
_NAMES = feed.feed_names(feed.REPLICAS)
_LIST_FIGURES = ("in_flight", "waiting", "tokens_per_s")


class Moved(NamedTuple):
    """The change number, and what moved since the one that was known."""

    number: int
    replicas: list[str]


def moved_since(number: int | None) -> Moved:
    """The replicas whose records moved; a lower number than before (Redis lost its
    data) is news of every replica, which an empty list with a new number means."""
    client = redis_client()
    now = int(cast("bytes | None", client.get(_NAMES.number)) or 0)
    if number is None or now <= number:
        return Moved(now, [])
    ids = cast("list[bytes]", client.zrangebyscore(_NAMES.changes, number + 1, "+inf"))
    return Moved(now, [raw.decode() for raw in ids])


def nodes_heard(names: list[str]) -> dict[str, tuple[float, str]]:
    """When each node was heard last and its state; 0 for never."""
    now, found = presences_read(names)
    at = {name: heard.at if heard else 0.0 for name, heard in found.items()}
    return {name: (at[name], node_state(at[name] or None, now)) for name in names}


class Teller:
    """Remembers what the watchers were told."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.number: int | None = None
        self.told: dict[str, dict[str, Values]] = {}
        self.rows: dict[str, list[dict[str, object]]] = {}
        self.heard: dict[str, tuple[float, str]] = {}
        self.turns = 0
        self.away = False

    async def turn(self) -> None:
        """One look at Redis; its absence is news, once, and so is its return."""
        self.turns += 1
        try:
            await self._changes()
            if self.turns % 2:
                await self._figures()
            if self.turns % 4 == 0:
                await self._nodes()
        except redis.RedisError:
            if not self.away:
                self._everyone(self.hub.topics)
            self.away = True
        else:
            if self.away:
                self._everyone(self.hub.topics)
            self.away = False

    def _everyone(self, topics: Iterable[str]) -> None:
        for topic in list(topics):
            self.hub.tell(topic, {"type": "changed"})

    async def _changes(self) -> None:
        known, moved = self.number, await asyncio.to_thread(moved_since, self.number)
        self.number = moved.number
        if known is None or moved.number == known:
            return
        if moved.number < known:
            self._everyone(self.hub.topics)
        else:
            nodes = [topic for topic in self.hub.topics if topic[:5] == "node."]
            ones = [f"replica.{one}" for one in moved.replicas]
            self._everyone(["replicas", *ones, *nodes])

    async def _nodes(self) -> None:
        """Heartbeats of the nodes that are watched; their list just looks again."""
        self.hub.tell("nodes", {"type": "changed"})
        watched = [t.removeprefix("node.") for t in self.hub.topics if t[:5] == "node."]
        if watched:
            heard = await asyncio.to_thread(nodes_heard, watched)
            for name in watched:
                if self.heard.get(name, heard[name]) != heard[name]:
                    self.hub.tell(f"node.{name}", {"type": "changed"})
            self.heard = heard

    async def _figures(self) -> None:
        for topic in self.hub.fresh_take():
            self.told.pop(topic, None)
            self.rows.pop(topic, None)
        watched = set(self.hub.topics)
        for gone in self.told.keys() - watched:
            self.told.pop(gone)
            self.rows.pop(gone, None)
        ones = {t.removeprefix("replica."): t for t in watched if t[:8] == "replica."}
        all_of_them = "replicas" in watched
        readings = await asyncio.to_thread(_read, list(ones), all_of_them)
        for replica_id, topic in ones.items():
            self._tell_one(topic, readings[replica_id])
        if all_of_them:
            self._tell_list(readings)

    def _tell_one(self, topic: str, reading: Reading) -> None:
        before = self.told.get(topic, {}).get("", {})
        values = reading.values
        self.told[topic] = {"": values}
        message: dict[str, object] = {}
        if news := _differing(before, values):
            message["values"] = news
        if (rows := reading.rows) != self.rows.get(topic):
            self.rows[topic] = rows
            message["requests"] = rows
        if message:
            self.hub.tell(topic, {"type": "figures", **message})

    def _tell_list(self, readings: dict[str, Reading]) -> None:
        before = self.told.get("replicas", {})
        now = {
            replica_id: {name: reading.values[name] for name in _LIST_FIGURES}
            for replica_id, reading in readings.items()
        }
        self.told["replicas"] = now
        news = {one: _differing(before.get(one, {}), now[one]) for one in now}
        if changed := {one: values for one, values in news.items() if values}:
            self.hub.tell("replicas", {"type": "figures", "rows": changed})


def _read(replica_ids: list[str], all_of_them: bool) -> dict[str, Reading]:
    """Readings of these replicas, or of every one that has a record."""
    singles = replica_ids
    if all_of_them:
        raw = cast("list[bytes]", redis_client().zrange(_NAMES.changes, 0, -1))
        replica_ids = list({*replica_ids, *(one.decode() for one in raw)})
    return readings_read(replica_ids, singles=singles)


def _differing(before: Values, now: Values) -> Values:
    return {
        name: value
        for name, value in now.items()
        if name not in before or before[name] != value
    }


async def produce(hub: Hub) -> None:
    """Work for the hub's watchers until cancelled."""
    loop, teller = asyncio.get_running_loop(), Teller(hub)
    next_at = loop.time()
    while True:
        try:
            await teller.turn()
        except Exception:
            # A page that is told nothing goes stale and says so; try again.
            log.exception("live numbers could not be read")
        next_at = max(next_at + TICK_S, loop.time())
        await asyncio.sleep(next_at - loop.time())


hub = Hub(produce)
