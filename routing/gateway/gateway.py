"""One gateway process: what it holds and what runs in its background."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Coroutine
from typing import Any

from cluster.health.inflight import inflight_name
from routing.balance.router import Router
from routing.balance.state import ReplicaStates
from routing.contracts import names
from routing.contracts.gateway import GatewayRecord
from routing.contracts.outcome import Outcome, outcome_encode
from routing.gateway.access_log import AccessLog
from routing.gateway.auth import Auth
from routing.gateway.clock import Clock
from routing.gateway.config import GatewayConfig
from routing.gateway.draws import Draws
from routing.gateway.feeds import Feeds
from routing.gateway.figures import Figures
from routing.gateway.ids import gateway_id
from routing.gateway.in_flight import InFlight
from routing.gateway.key_file import KeyKeeper
from routing.gateway.metrics import Gauges, Metrics
from routing.gateway.passive import PassiveHealth
from routing.gateway.redis_link import ANSWER_S, REDIS_ERRORS, RedisLink
from routing.gateway.relay import Relay
from routing.gateway.standings import Standings
from routing.gateway.telemetry import Telemetry
from routing.gateway.upstream import Pool
from routing.gateway.watcher import Watcher

log = logging.getLogger(__name__)


class Gateway:
    """Everything that the requests of this process share."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self.id = gateway_id()
        self.hold_s = config.hold_s
        self.draining = False
        self.relays: set[Relay] = set()
        self.clock = Clock()
        self.rng = random.Random()
        self.draws = Draws()
        self.pool = Pool(self.clock)
        self.link = RedisLink(config.redis_url)
        self.auth = Auth(self.link, config.key_grace_s, self.spawn)
        self.metrics = Metrics()
        self.access_log = AccessLog()
        self.telemetry = Telemetry(config.redis_url, self.id, config.outcomes_bytes)
        self.states = ReplicaStates()
        self.watcher = Watcher(
            self.link, self.states, config.data_dir / "snapshot.json"
        )
        self.standings = Standings(self.states)
        self.passive = PassiveHealth(
            *(self.states, self.standings, self.link),
            *(self.id, self.rng, self.spawn),
        )
        self.in_flight = InFlight(self.link, self.id, self.relays)
        self.figures = Figures(self.link, self.id, self.metrics, self._gauges)
        self._started_at = time.time()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keys = KeyKeeper(
            self.auth, config.data_dir / "gateway-keys.json", config.key_grace_s
        )
        self._feeds = Feeds(
            *(self.link, self.watcher, self.auth),
            *(self.states, self.standings, self.passive),
            *(self._record, self.draws, self.spawn),
        )

    @property
    def router(self) -> Router | None:
        return self.watcher.router

    async def start(self) -> None:
        """Load what was left on disk, ask Redis once, then keep up with it."""
        self.clock.start(asyncio.get_running_loop())
        self.clock.watch(self.passive)
        self.watcher.load()
        self.standings.follow()
        self._keys.load()
        self.spawn(self.access_log.run())
        if not self.config.redis_url:
            self.standings.blind(True)
            return
        await self._feeds.poll()
        self.spawn(self._feeds.run())
        self.spawn(self._feeds.listen())
        self.spawn(self._keys.run())
        self.spawn(self.figures.run())
        self.spawn(self.in_flight.run())
        self.spawn(self.telemetry.run())

    async def stop(self) -> None:
        """End what runs in the background; the last lines are written."""
        while self._tasks:
            # More than once: ``asyncio.wait_for`` before Python 3.12, which the Redis
            # library uses, may swallow it.
            for task in list(self._tasks):
                task.cancel()
            await asyncio.wait(list(self._tasks), timeout=0.1)
        self.pool.close()
        self.clock.stop()
        if self.config.redis_url:
            await self.telemetry.finish()
        await self._say_goodbye()
        await self.link.close()
        self.access_log.close()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run beside the traffic; whatever goes wrong there is logged."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a background task failed", exc_info=error)

    # What relays and exchanges report --------------------------------------------

    def emit(self, outcome: Outcome) -> None:
        line = outcome_encode(outcome)
        self.metrics.count(outcome)
        self.telemetry.add(outcome, line)
        self.access_log.write(line)

    def relay_opened(self, relay: Relay) -> None:
        self.relays.add(relay)
        self.metrics.in_flight[relay.model] += 1

    def relay_closed(self, relay: Relay) -> None:
        self.relays.discard(relay)
        self.metrics.in_flight[relay.model] -= 1

    def retried(self, reason: str) -> None:
        self.metrics.retried(reason)

    def retry_refused(self, model: str) -> None:
        self.metrics.retries_refused[model] += 1

    # What it says of itself -------------------------------------------------------

    def _record(self) -> GatewayRecord:
        epoch, revision = self.watcher.current
        return GatewayRecord(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at=self._started_at,
            epoch=epoch,
            revision=revision,
            applied_at=self.watcher.applied_at,
            in_flight=self.metrics.in_flight.total(),
            draining=self.draining,
            emitted=self.telemetry.outcomes.emitted,
            dropped=self.telemetry.outcomes.dropped,
        )

    def _gauges(self) -> Gauges:
        epoch, revision = self.watcher.current
        return Gauges(
            snapshot_revision=revision,
            snapshot_epoch=epoch,
            redis_up=self.link.up,
            log_dropped=self.access_log.dropped,
            outcomes_dropped=self.telemetry.outcomes.dropped,
            outcomes_waiting=self.telemetry.outcomes.waiting,
            cells_waiting=self.telemetry.counts.waiting,
            unacknowledged_s=round(self.telemetry.unacknowledged_s, 1),
            snapshots_ignored=self.watcher.ignored,
            replica_states={
                replica_id: state.label.value
                for replica_id, state in self.standings.merged.items()
            },
        )

    async def _say_goodbye(self) -> None:
        """Take the own record away at once, instead of letting it expire."""
        if not self.link.up:
            return
        pipeline = self.link.client.pipeline(transaction=False)
        pipeline.delete(
            names.gateway(self.id),
            names.gateway_metrics(self.id),
            names.gateway_draws(self.id),
            inflight_name(self.id),
        )
        pipeline.zrem(names.GATEWAYS, self.id)
        try:
            async with asyncio.timeout(ANSWER_S):
                await pipeline.execute()
        except REDIS_ERRORS as error:
            log.warning("the gateway's record is left to expire: %s", error)
