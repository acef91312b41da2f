"""The replicas' live records and loads in Redis, as the Django processes use them.

Redis may be away: every function here then raises ``redis.RedisError``, and the
callers say what that means for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, cast

import msgspec
import redis
from django.conf import settings

from cluster import feed
from cluster.health import (
    AdminAxis,
    NodeAxis,
    PassiveAxis,
    ProbeAxis,
    ProcessAxis,
    Record,
    record_decode,
)
from cluster.health.engine_facts import (
    ENGINE_FACTS,
    EngineFacts,
    engine_facts_decode,
)
from cluster.health.load import (
    LOADS,
    MINUTE_KEPT_S,
    PROBED,
    Load,
    LoadPoint,
    load_decode,
    minute_list,
)
from cluster.health.probing import Deep
from cluster.health.served import SERVED
from cluster.health.usage import MEMORY_KEPT_S, memory_name

_NAMES = feed.feed_names(feed.REPLICAS)


@functools.cache
def redis_client() -> redis.Redis:
    """The process's one connection pool; short timeouts, so that no page hangs."""
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=2,
        socket_connect_timeout=1,
        retry_on_timeout=False,
    )


def axis_write(
    replica_id: str, axis: AdminAxis | NodeAxis | ProcessAxis | ProbeAxis
) -> bool:
    """Write one axis of a record; true when that changed anything."""
    name = type(axis).__name__.removesuffix("Axis").lower()
    script = redis_client().register_script(feed.HASH_FIELD_PUT)
    keys = [_NAMES.entry(replica_id), _NAMES.number, _NAMES.changes, _NAMES.notices]
    return bool(script(keys=keys, args=[replica_id, name, msgspec.json.encode(axis)]))


def memory_write(replica_id: str, held_bytes: int) -> None:
    """What the process of a replica holds in memory; forgotten after 20 s."""
    redis_client().set(memory_name(replica_id), held_bytes, ex=MEMORY_KEPT_S)


def record_delete(replica_id: str) -> None:
    script = redis_client().register_script(feed.ENTRY_DELETE)
    keys = [_NAMES.entry(replica_id), _NAMES.number, _NAMES.changes, _NAMES.notices]
    script(keys=keys, args=[replica_id])
    redis_client().hdel(LOADS, replica_id)
    redis_client().hdel(ENGINE_FACTS, replica_id)
    redis_client().hdel(PROBED, replica_id)
    redis_client().zrem(SERVED, replica_id)


def records_read(replica_ids: Iterable[str]) -> dict[str, Record]:
    """The record of each id, in one round trip; unknown ids have an empty one."""
    ids = list(replica_ids)
    pipeline = redis_client().pipeline(transaction=False)
    for replica_id in ids:
        pipeline.hgetall(_NAMES.entry(replica_id))
    return dict(zip(ids, map(record_decode, pipeline.execute()), strict=True))


class FleetRead(NamedTuple):
    """``now`` is Redis's clock, by which the times of ``passive`` are meant."""

    records: dict[str, Record]
    loads: dict[str, Load]
    now: float


def fleet_read(replica_ids: Iterable[str]) -> FleetRead:
    """All that states are made of, in one round trip; unknown ids are empty."""
    ids = list(replica_ids)
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.time()
    pipeline.hgetall(LOADS)
    for replica_id in ids:
        pipeline.hgetall(_NAMES.entry(replica_id))
    (seconds, micros), loads, *records = pipeline.execute()
    return FleetRead(
        dict(zip(ids, map(record_decode, records), strict=True)),
        _loads(loads),
        seconds + micros / 1e6,
    )


def served_s(replica_id: str) -> float:
    """How long ago any gateway had content from this replica, in seconds."""
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.zscore(SERVED, replica_id)
    pipeline.time()
    score, (seconds, micros) = pipeline.execute()
    return float("inf") if score is None else seconds + micros / 1e6 - score


class DeepKnown(NamedTuple):
    """What a deep probe is decided by; ``served_at`` is 0 for never."""

    record: Record
    deep: Deep
    served_at: float


def deeps_read(replica_ids: Collection[str]) -> tuple[dict[str, DeepKnown], float]:
    """By replica, and Redis's clock; in one round trip."""
    ids = list(replica_ids)
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.time()
    for replica_id in ids:
        pipeline.hgetall(_NAMES.entry(replica_id))
        pipeline.get(_deep_name(replica_id))
        pipeline.zscore(SERVED, replica_id)
    (seconds, micros), *answers = pipeline.execute()
    known = {
        id_: DeepKnown(record_decode(fields), _deep(raw), score or 0.0)
        for id_, fields, raw, score in zip(
            ids, answers[::3], answers[1::3], answers[2::3], strict=True
        )
    }
    return known, seconds + micros / 1e6


def deep_write(replica_id: str, deep: Deep) -> None:
    redis_client().set(_deep_name(replica_id), msgspec.json.encode(deep), ex=600)


def _deep_name(replica_id: str) -> str:
    return f"sluice:probe:{replica_id}#deep"


def _deep(raw: bytes | None) -> Deep:
    return msgspec.json.decode(raw, type=Deep) if raw else Deep()


_SETTLED = "sluice:transitions#settled"


def transitions_mark() -> bytes | None:
    """The change number of the records; None if nothing can have changed since the
    history was written for the same number."""
    answers = redis_client().mget(_NAMES.number, _SETTLED)
    number, settled = cast("list[bytes | None]", answers)
    mark = number or b"0"
    return None if mark == settled else mark


def transitions_done(mark: bytes, *, settled: bool) -> None:
    """The history is written up to this number. Looked at again after a minute, for a
    removed replica may change what the others are."""
    if settled:
        redis_client().set(_SETTLED, mark, ex=60)


def passive_change(
    replica_id: str,
    change: Callable[[Record, float], PassiveAxis | None],
    *,
    tries: int = 5,
) -> bool:
    """Replace the axis ``passive`` by what ``change`` makes of the record at a time
    by Redis's clock; true when that changed anything.

    Gateways write this axis too, so it is computed anew when one was faster.
    """
    client = redis_client()
    script = client.register_script(feed.HASH_FIELD_SWAP)
    keys = [_NAMES.entry(replica_id), _NAMES.number, _NAMES.changes, _NAMES.notices]
    for _ in range(tries):
        pipeline = client.pipeline(transaction=False)
        pipeline.hgetall(_NAMES.entry(replica_id))
        pipeline.time()
        fields, (seconds, micros) = pipeline.execute()
        record = record_decode(fields)
        axis = change(record, seconds + micros / 1e6)
        if axis is None or axis == record.passive:
            return False
        before = fields.get(b"passive", b"")
        if script(
            keys=keys, args=[replica_id, "passive", before, msgspec.json.encode(axis)]
        ):
            return True
    return False


def node_axes_read(replica_ids: Iterable[str]) -> dict[str, NodeAxis | None]:
    """The node axis of each replica; None where none is written."""
    ids = list(replica_ids)
    pipeline = redis_client().pipeline(transaction=False)
    for replica_id in ids:
        pipeline.hget(_NAMES.entry(replica_id), "node")
    return dict(zip(ids, map(_node_axis, pipeline.execute()), strict=True))


def _node_axis(raw: bytes | None) -> NodeAxis | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=NodeAxis)
    except msgspec.DecodeError:
        return None


def load_write(replica_id: str, load: Load, *, unlock: str) -> None:
    """Write a load, keep it for the samples, and drop the lock of its scrape."""
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.hset(LOADS, replica_id, msgspec.json.encode(load))
    if not load.error:
        name = minute_list(int(load.at // 60))
        pipeline.rpush(name, msgspec.json.encode(_point(replica_id, load)))
        pipeline.expire(name, MINUTE_KEPT_S)
    pipeline.delete(unlock)
    pipeline.execute()


def _point(replica_id: str, load: Load) -> LoadPoint:
    return LoadPoint(
        replica_id,
        load.running,
        load.waiting,
        load.kv_cache,
        load.tokens_per_s,
        load.ttft_ms,
    )


def loads_read() -> dict[str, Load]:
    """The load of every replica that has one."""
    return _loads(cast("Mapping[bytes, bytes]", redis_client().hgetall(LOADS)))


def load_read(replica_id: str) -> Load | None:
    """The load of one replica."""
    return load_decode(cast("bytes | None", redis_client().hget(LOADS, replica_id)))


def _loads(fields: Mapping[bytes, bytes]) -> dict[str, Load]:
    loads = {id_.decode(): load_decode(raw) for id_, raw in fields.items()}
    return {id_: load for id_, load in loads.items() if load is not None}


def minute_points(minute: int) -> list[LoadPoint]:
    """The scrapes that were kept of a minute."""
    raw = cast("list[bytes]", redis_client().lrange(minute_list(minute), 0, -1))
    return [msgspec.json.decode(point, type=LoadPoint) for point in raw]


def minute_drop(minute: int) -> None:
    redis_client().delete(minute_list(minute))


def probed_mark(replica_ids: Iterable[str], now: float) -> None:
    """These replicas are being probed; ``now`` is the prober's Unix time."""
    if at := dict.fromkeys(replica_ids, now):
        fields: Any = at
        redis_client().hset(PROBED, mapping=fields)


def loads_drop(replica_ids: Collection[str], *, unlock: Collection[str] = ()) -> None:
    """Forget these loads, and drop these locks."""
    pipeline = redis_client().pipeline(transaction=False)
    if replica_ids:
        pipeline.hdel(LOADS, *replica_ids)
        pipeline.hdel(PROBED, *replica_ids)
    if unlock:
        pipeline.delete(*unlock)
    pipeline.execute()


def loads_keep(replica_ids: Collection[str]) -> None:
    """Forget the load of every other replica."""
    known = cast("Iterable[bytes]", redis_client().hkeys(LOADS))
    if gone := {id_.decode() for id_ in known} - set(replica_ids):
        loads_drop(gone)


def engine_facts_read() -> dict[str, EngineFacts]:
    """The facts of every engine that was asked."""
    fields = cast("Mapping[bytes, bytes]", redis_client().hgetall(ENGINE_FACTS))
    found = {id_.decode(): engine_facts_decode(raw) for id_, raw in fields.items()}
    return {id_: facts for id_, facts in found.items() if facts is not None}


def engine_facts_write(
    found: Mapping[str, EngineFacts], *, gone: Collection[str] = ()
) -> None:
    """Write these facts, and forget those of the replicas that are ``gone``."""
    pipeline = redis_client().pipeline(transaction=False)
    for replica_id, facts in found.items():
        pipeline.hset(ENGINE_FACTS, replica_id, msgspec.json.encode(facts))
    if gone:
        pipeline.hdel(ENGINE_FACTS, *gone)
    pipeline.execute()
