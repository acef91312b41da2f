"""Which nodes are heard of: the heartbeats in Redis. See ``cluster.health.node``.

Redis may be away: every function here then raises ``redis.RedisError``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple, cast

import msgspec

from cluster.health.node import (
    KEPT_S,
    RIVAL_SHOWN_S,
    SILENT_S,
    NodeFacts,
    facts_decode,
    node_name,
)
from cluster.live import redis_client

# ARGV: holder, facts, seconds of silence after which another may take the place,
# whether to take it, seconds to keep. Answers whether it was taken, since when the
# holder is silent, and the holder's facts; who is turned away is noted, for people to
# see both. The time is that of Redis throughout.
_BEAT = """
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local known = redis.call('HMGET', KEYS[1], 'holder', 'at', 'facts')
if known[1] and known[1] ~= ARGV[1] then
  local silence = now - tonumber(known[2])
  if ARGV[4] ~= '1' or silence < tonumber(ARGV[3]) then
    redis.call('HSET', KEYS[1], 'rival', ARGV[2],
               'rival_at', string.format('%.3f', now))
    return {0, tostring(silence), known[3]}
  end
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'at', string.format('%.3f', now),
           'facts', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[5])
return {1, '0', ''}
"""


class Held(NamedTuple):
    """Another installation has the name; ``silence_s`` is the age of its last
    heartbeat."""

    silence_s: float
    facts: NodeFacts | None


class Presence(NamedTuple):
    """``rival`` is another machine that was lately refused this node's name."""

    at: float
    facts: NodeFacts | None
    rival: NodeFacts | None = None


def presence_beat(
    name: str, *, holder: str, facts: NodeFacts, replace: bool = False
) -> Held | None:
    """Say that this installation of the node lives; ``Held`` if another one has the
    name, which is only replaced on demand, and only after it fell silent."""
    script = redis_client().register_script(_BEAT)
    arguments: list[str | bytes | float] = [
        holder,
        msgspec.json.encode(facts),
        SILENT_S,
        int(replace),
        KEPT_S,
    ]
    taken, silence, known = cast(
        "tuple[int, bytes, bytes]",
        script(keys=[node_name(name)], args=arguments),
    )
    return None if taken else Held(float(silence), facts_decode(known))


def clock_offset_s() -> float:
    """By how much this machine's clock is ahead of that of Redis; good to half a
    round trip."""
    before = time.time()
    at = redis_time()
    return (before + time.time()) / 2 - at


def redis_time() -> float:
    seconds, micros = redis_client().time()
    return seconds + micros / 1e6


def redis_uptime_s() -> float:
    """How long Redis runs; it cannot have heard anybody before."""
    server = cast("dict[str, int]", redis_client().info("server"))
    return float(server["uptime_in_seconds"])


def presences_read(names: Iterable[str]) -> tuple[float, dict[str, Presence | None]]:
    """The time by Redis, and what it holds of each node; in one round trip."""
    wanted = list(names)
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.time()
    for name in wanted:
        pipeline.hmget(node_name(name), "at", "facts", "rival", "rival_at")
    (seconds, micros), *found = pipeline.execute()
    now = seconds + micros / 1e6
    return now, {
        name: _presence(*values, now=now)
        for name, values in zip(wanted, found, strict=True)
    }


def _presence(
    at: bytes | None,
    facts: bytes | None,
    rival: bytes | None,
    rival_at: bytes | None,
    *,
    now: float,
) -> Presence | None:
    if not at:
        return None
    lately = rival_at is not None and now - float(rival_at) < RIVAL_SHOWN_S
    return Presence(
        float(at), facts_decode(facts), facts_decode(rival) if lately else None
    )
