"""The requests that the gateways have open at each replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import redis

from cluster import live
from cluster.health import inflight
from cluster.health.inflight import OpenRequest, inflight_decode

# Ids of gateways that are gone stay in the set for a while.
_GATEWAYS_MOST = 512


@dataclass(frozen=True)
class InFlight:
    """``requests`` are by replica id. While ``silent`` live gateways do not say what
    they have open, the counts are only lower bounds."""

    requests: Mapping[str, list[OpenRequest]]
    silent: int

    def count(self, replica_id: str) -> int | None:
        """How many requests are open there; None when that is not known."""
        return None if self.silent else len(self.requests.get(replica_id, []))


def inflight_read() -> InFlight | None:
    """What is open now, over all live gateways; None while Redis is away."""
    try:
        return _read(live.redis_client())
    except redis.RedisError:
        return None


def inflight_count(*, replica_id: str) -> int | None:
    """How many requests are open at a replica; None when that is not known."""
    now = inflight_read()
    return None if now is None else now.count(replica_id)


def _read(client: redis.Redis) -> InFlight:
    raw = client.zrevrange(inflight.GATEWAYS, 0, _GATEWAYS_MOST - 1)
    ids = [id_.decode() for id_ in cast("list[bytes]", raw)]
    pipeline = client.pipeline(transaction=False)
    for id_ in ids:
        # A gateway lives as long as its record: its clock is nobody's business.
        pipeline.exists(inflight.gateway_record_name(id_))
        pipeline.hgetall(inflight.inflight_name(id_))
    answers = iter(pipeline.execute())
    requests: dict[str, list[OpenRequest]] = {}
    silent = 0
    for _id in ids:
        lives, fields = next(answers), next(answers)
        if not lives:
            continue
        open_ = inflight_decode(fields)
        silent += open_ is None
        for replica_id, some in (open_ or {}).items():
            requests.setdefault(replica_id, []).extend(some)
    return InFlight(requests, silent)
