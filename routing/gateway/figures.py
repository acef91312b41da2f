"""The figures of all workers, at whichever of them is asked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import cast

import msgspec

from routing.contracts import names
from routing.gateway.metrics import (
    Family,
    Gauges,
    Metrics,
    families_decode,
    families_encode,
    render,
)
from routing.gateway.redis_link import ANSWER_S, REDIS_ERRORS, RedisLink

log = logging.getLogger(__name__)

PUBLISH_S = 2.0


class Figures:
    """Publishes this worker's figures, and gathers those of the others."""

    def __init__(
        self,
        link: RedisLink,
        gateway_id: str,
        metrics: Metrics,
        gauges: Callable[[], Gauges],
    ) -> None:
        self._link = link
        self._gateway_id = gateway_id
        self._metrics = metrics
        self._gauges = gauges

    async def run(self) -> None:
        """Publish every two seconds until cancelled."""
        while True:
            await asyncio.sleep(PUBLISH_S)
            if self._link.up:
                with contextlib.suppress(*REDIS_ERRORS):
                    await self._link.client.set(
                        names.gateway_metrics(self._gateway_id),
                        families_encode(self._own()),
                        ex=names.GATEWAY_LEASE_S,
                    )

    async def text(self) -> bytes:
        """The Prometheus text; of this worker alone while Redis is away."""
        others: list[list[Family]] = []
        if self._link.up:
            try:
                async with asyncio.timeout(ANSWER_S):
                    others = await self._others()
            except REDIS_ERRORS as error:
                log.warning("the other workers' figures are missing: %s", error)
        return render([self._own(), *others])

    def _own(self) -> list[Family]:
        return self._metrics.families(self._gateway_id, self._gauges())

    async def _others(self) -> list[list[Family]]:
        client = self._link.client
        oldest = time.time() - names.GATEWAY_LEASE_S
        ids = cast(
            "list[bytes]", await client.zrangebyscore(names.GATEWAYS, oldest, "+inf")
        )
        others = [i.decode() for i in ids if i.decode() != self._gateway_id]
        if not others:
            return []
        bodies = await client.mget([names.gateway_metrics(i) for i in others])
        found: list[list[Family]] = []
        for body in cast("list[bytes | None]", bodies):
            with contextlib.suppress(msgspec.DecodeError):
                if body is not None:
                    found.append(families_decode(body))
        return found
