"""Tells the control plane which requests are open at which replica.

Pages show them, and a drain waits for them. Written every second, and at once when
the last request of a draining replica ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from cluster.health.inflight import OpenRequest, inflight_fields, inflight_name
from routing.contracts import names
from routing.gateway.redis_link import ANSWER_S, REDIS_ERRORS, RedisLink
from routing.gateway.relay import Relay

log = logging.getLogger(__name__)

PUBLISH_S = 1.0


class InFlight:
    """``relays`` are the open requests of this process."""

    def __init__(
        self, link: RedisLink, gateway_id: str, relays: Collection[Relay]
    ) -> None:
        self._link = link
        self._gateway_id = gateway_id
        self._relays = relays
        self._wake = asyncio.Event()

    def soon(self) -> None:
        """A drain waits for what just ended."""
        self._wake.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PUBLISH_S):
                    await self._wake.wait()
            self._wake.clear()
            if self._link.up:
                try:
                    async with asyncio.timeout(ANSWER_S):
                        await self._publish()
                except REDIS_ERRORS as error:
                    log.warning("open requests are not published: %s", error)

    async def _publish(self) -> None:
        """All of it at once: a reader never sees half."""
        name = inflight_name(self._gateway_id)
        pipeline: Any = self._link.client.pipeline(transaction=True)
        pipeline.delete(name)
        pipeline.hset(name, mapping=inflight_fields(self._requests()))
        pipeline.expire(name, names.GATEWAY_LEASE_S)
        await pipeline.execute()

    def _requests(self) -> dict[str, list[OpenRequest]]:
        now = time.monotonic()
        found: dict[str, list[OpenRequest]] = defaultdict(list)
        for relay in self._relays:
            exchange, replica_id = relay.exchange, relay.replica_id
            if replica_id:
                found[replica_id].append(
                    OpenRequest(
                        request_id=exchange.request.id,
                        team=exchange.team,
                        age_s=round(now - exchange.request.arrived, 1),
                        streamed=exchange.streamed,
                        tokens=relay.tokens,
                    )
                )
        return found
