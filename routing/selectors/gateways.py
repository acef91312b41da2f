from __future__ import annotations

import time
from dataclasses import dataclass
from typing import cast

import msgspec

from cluster.live import redis_client
from routing.contracts import names
from routing.contracts.gateway import GatewayRecord, gateway_decode
from routing.models import Revision


@dataclass(frozen=True)
class Applied:
    """How many of the live gateways serve by the newest revision, or a later one."""

    revision: int
    gateways: int
    of: int

    @property
    def complete(self) -> bool:
        return self.of > 0 and self.gateways == self.of


def gateway_list() -> list[GatewayRecord]:
    """The gateways that renewed their lease, oldest first; may raise RedisError."""
    client = redis_client()
    oldest = time.time() - 60 * names.GATEWAY_LEASE_S
    ids = cast("list[bytes]", client.zrangebyscore(names.GATEWAYS, oldest, "+inf"))
    if not ids:
        return []
    bodies = client.mget([names.gateway(gateway_id.decode()) for gateway_id in ids])
    records: list[GatewayRecord] = []
    for body in cast("list[bytes | None]", bodies):
        if body is None:
            continue
        try:
            records.append(gateway_decode(body))
        except msgspec.DecodeError:
            continue
    return sorted(records, key=lambda record: (record.started_at, record.id))


def applied_state() -> Applied:
    """The state of the newest revision over the live gateways."""
    newest = Revision.objects.only("epoch", "number").first()
    wanted = (newest.epoch, newest.number) if newest else (0, 0)
    gateways = gateway_list()
    applied = sum(1 for g in gateways if (g.epoch, g.revision) >= wanted)
    return Applied(revision=wanted[1], gateways=applied, of=len(gateways))
