"""The live numbers of replicas, as views and websockets show them; Redis only.

A figure that nobody collects, or that is too old to be believed, is None: a page
then says so instead of showing a number.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import msgspec

from cluster.health.inflight import (
    GATEWAYS,
    OpenRequest,
    gateway_record_name,
    inflight_decode,
    inflight_name,
)
from cluster.health.load import LOADS, Load, load_decode
from cluster.live import redis_client

# Engines are asked every 5 s: what is older than three turns is not "now".
LOAD_BELIEVED_S = 15.0
# A gateway renews its record every second; see routing.contracts.names.
_GATEWAY_QUIET_S = 5.0
REQUESTS_SHOWN = 50

Values = dict[str, float | None]


class Reading(NamedTuple):
    """``requests``: the open ones, oldest first; None when a gateway does not say."""

    load: Load | None
    requests: list[OpenRequest] | None

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
        }

    @property
    def rows(self) -> list[dict[str, object]]:
        """The open requests as plain data, the oldest first."""
        shown = (self.requests or [])[:REQUESTS_SHOWN]
        return [msgspec.structs.asdict(request) for request in shown]


def readings_read(replica_ids: Sequence[str]) -> dict[str, Reading]:
    """A reading of each replica; may raise ``RedisError``."""
    if not replica_ids:
        return {}
    loads = cast("list[bytes | None]", redis_client().hmget(LOADS, list(replica_ids)))
    open_ = open_requests()
    return {
        replica_id: Reading(
            load_decode(raw), None if open_ is None else open_.get(replica_id, [])
        )
        for replica_id, raw in zip(replica_ids, loads, strict=True)
    }


def open_requests() -> dict[str, list[OpenRequest]] | None:
    """What all live gateways have open, by replica; None when one does not say."""
    client = redis_client()
    oldest = time.time() - _GATEWAY_QUIET_S
    ids = cast("list[bytes]", client.zrangebyscore(GATEWAYS, oldest, "+inf"))
    pipeline = client.pipeline(transaction=False)
    for gateway_id in ids:
        pipeline.exists(gateway_record_name(gateway_id.decode()))
        pipeline.hgetall(inflight_name(gateway_id.decode()))
    found = pipeline.execute()
    alive = (
        fields for lives, fields in zip(found[::2], found[1::2], strict=True) if lives
    )
    return _joined(map(inflight_decode, alive))


def _joined(
    parts: Iterable[dict[str, list[OpenRequest]] | None],
) -> dict[str, list[OpenRequest]] | None:
    found: defaultdict[str, list[OpenRequest]] = defaultdict(list)
    for part in parts:
        if part is None:
            return None
        for replica_id, requests in part.items():
            found[replica_id] += requests
    for requests in found.values():
        requests.sort(key=lambda request: -request.age_s)
    return dict(found)
