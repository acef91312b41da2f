"""The live records of the replicas in Redis, as the Django processes use them.

Redis may be away: every function here then raises ``redis.RedisError``, and the
callers say what that means for them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import msgspec
import redis
from django.conf import settings

from cluster import feed
from cluster.health import AdminAxis, ProbeAxis, ProcessAxis, Record, record_decode

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


def axis_write(replica_id: str, axis: AdminAxis | ProcessAxis | ProbeAxis) -> bool:
    """Write one axis of a record; true when that changed anything."""
    name = type(axis).__name__.removesuffix("Axis").lower()
    script = redis_client().register_script(feed.HASH_FIELD_PUT)
    keys = [_NAMES.entry(replica_id), _NAMES.number, _NAMES.changes, _NAMES.notices]
    return bool(script(keys=keys, args=[replica_id, name, msgspec.json.encode(axis)]))


def record_delete(replica_id: str) -> None:
    script = redis_client().register_script(feed.ENTRY_DELETE)
    keys = [_NAMES.entry(replica_id), _NAMES.number, _NAMES.changes, _NAMES.notices]
    script(keys=keys, args=[replica_id])


def records_read(replica_ids: Iterable[str]) -> dict[str, Record]:
    """The record of each id, in one round trip; unknown ids have an empty one."""
    ids = list(replica_ids)
    pipeline = redis_client().pipeline(transaction=False)
    for replica_id in ids:
        pipeline.hgetall(_NAMES.entry(replica_id))
    return dict(zip(ids, map(record_decode, pipeline.execute()), strict=True))
