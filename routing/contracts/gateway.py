"""What a gateway process says of itself, renewed every second while it lives."""

from __future__ import annotations

import msgspec


class GatewayRecord(msgspec.Struct, frozen=True):
    """Times are Unix seconds. ``id`` is unique for the life of the process. ``emitted``
    is the number of its last outcome, ``dropped`` how many of them it could not keep
    until they were sent."""

    id: str
    host: str
    pid: int
    started_at: float
    epoch: int
    revision: int
    applied_at: float
    in_flight: int = 0
    draining: bool = False
    emitted: int = 0
    dropped: int = 0


def gateway_decode(body: bytes) -> GatewayRecord:
    return msgspec.json.decode(body, type=GatewayRecord)
