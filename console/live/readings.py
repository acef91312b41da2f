"""The live numbers of replicas, as views and websockets show them; Redis only.

A figure that nobody collects, or that is too old to be believed, is None: a page
then says so instead of showing a number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple, cast

import msgspec
import redis

from cluster.health.failures import failures_name, failures_of_hour
from cluster.health.inflight import OpenRequest
from cluster.health.load import LOADS, PROBED, PROBED_EVERY_S, Load, load_decode
from cluster.health.usage import memory_name
from cluster.live import redis_client
from cluster.selectors.inflight import InFlight, inflight_read

# Engines are asked every 5 s: what is older than three turns is not "now".
LOAD_BELIEVED_S = 15.0
REQUESTS_SHOWN = 50

Values = dict[str, float | None]


class Reading(NamedTuple):
    """``requests``: the open ones, oldest first; None when a gateway does not say.

    ``memory_bytes``, ``errors_hour`` and ``probed_at`` (Unix seconds, 0 for never) are
    read for single replicas only.
    """

    load: Load | None
    requests: list[OpenRequest] | None
    memory_bytes: int | None = None
    errors_hour: int | None = None
    probed_at: float = 0.0

    @property
    def values(self) -> Values:
        """The figures by their names in pages; ``kv`` in percent."""
        load = self.load
        if load is not None and (load.error or time.time() - load.at > LOAD_BELIEVED_S):
            load = None
        kv = load.kv_cache if load else None
        return {
            "in_flight": None if self.requests is None else len(self.requests),
            "oldest_s": self.requests[0].age_s if self.requests else None,
            "running": load.running if load else None,
            "waiting": load.waiting if load else None,
            "kv": None if kv is None else kv * 100,
            "tokens_per_s": load.tokens_per_s if load else None,
            "ttft_ms": load.ttft_ms if load else None,
            "next_probe_s": self._next_probe_s(),
            "memory_mib": None
            if self.memory_bytes is None
            else self.memory_bytes / 2**20,
            "errors_hour": self.errors_hour,
        }

    def _next_probe_s(self) -> float | None:
        """Whole seconds to the next probe; None where none is due."""
        ago_s = time.time() - self.probed_at
        return (
            None if ago_s > LOAD_BELIEVED_S else max(0, round(PROBED_EVERY_S - ago_s))
        )

    @property
    def rows(self) -> list[dict[str, object]]:
        """The open requests as plain data, the oldest first."""
        shown = (self.requests or [])[:REQUESTS_SHOWN]
        return [msgspec.structs.asdict(request) for request in shown]


def readings_read(
    replica_ids: Sequence[str], *, singles: Sequence[str] = ()
) -> dict[str, Reading]:
    """A reading of each replica, with all there is of the ``singles`` among them;
    may raise ``RedisError``."""
    if not replica_ids:
        return {}
    loads = cast("list[bytes | None]", redis_client().hmget(LOADS, list(replica_ids)))
    open_ = inflight_read()
    readings = {
        replica_id: Reading(load_decode(raw), _requests(open_, replica_id))
        for replica_id, raw in zip(replica_ids, loads, strict=True)
    }
    return readings | _completed({one: readings[one] for one in singles})


def _completed(readings: dict[str, Reading]) -> dict[str, Reading]:
    """These readings with what is kept for each replica by itself."""
    if not readings:
        return {}
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.time()
    for replica_id in readings:
        pipeline.get(memory_name(replica_id))
        pipeline.hgetall(failures_name(replica_id))
        pipeline.hget(PROBED, replica_id)
    (seconds, _micros), *kept = pipeline.execute()
    return {
        replica_id: reading._replace(
            memory_bytes=None if memory is None else int(memory),
            # Gateways that say what they have open also say what failed.
            errors_hour=None
            if reading.requests is None
            else failures_of_hour(failures, seconds),
            probed_at=float(probed or 0),
        )
        for (replica_id, reading), memory, failures, probed in zip(
            readings.items(), kept[::3], kept[1::3], kept[2::3], strict=True
        )
    }


def _requests(open_: InFlight | None, replica_id: str) -> list[OpenRequest] | None:
    if open_ is None or open_.silent:
        return None
    found = open_.requests.get(replica_id, [])
    return sorted(found, key=lambda request: -request.age_s)


def reading_read(replica_id: str) -> Reading:
    """The reading of one replica; nothing is known of it while Redis is away."""
    try:
        return readings_read([replica_id], singles=[replica_id])[replica_id]
    except redis.RedisError:
        return Reading(None, None)
