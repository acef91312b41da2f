"""Sends outcomes and counts to Redis, and learns what of them is stored."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time

from routing.contracts import names
from routing.contracts.counts import COUNTS_WRITE
from routing.contracts.outcome import BATCH_APPEND_IN_EPOCH, Outcome
from routing.gateway.counts import WRITE_CELLS, Counts
from routing.gateway.outcomes import BATCH_BYTES, Outcomes
from routing.gateway.redis_line import RedisLine
from routing.gateway.redis_link import REDIS_ERRORS

log = logging.getLogger(__name__)

SEND_S = 0.2
# Counts are written, and acknowledgements read, this often.
COUNTS_S = 1.0
RETRY_S = 0.5
FINISH_S = 2.0
# So long may nothing be acknowledged, and so long a loss is worth a warning.
LATE_S = 15.0
LOSS_TOLD_S = 600.0


class EpochChanged(Exception):
    """Redis lost its data since it was last looked at."""


class Telemetry:
    """``stream_bytes`` bounds the stream of outcomes over all gateways."""

    def __init__(self, redis_url: str, gateway_id: str, stream_bytes: int) -> None:
        self.outcomes = Outcomes(gateway_id)
        self.counts = Counts()
        self._gateway_id = gateway_id
        self._stream_bytes = stream_bytes
        self._line = RedisLine(redis_url)
        self._scripts: tuple[bytes, bytes] = (b"", b"")
        self._epoch = b""
        self._partly_at = 0.0
        self._counts_at = 0.0
        self._failing = False
        # Until when (monotonic) nothing waited, or something was acknowledged.
        self._settled_at = time.monotonic()

    def add(self, outcome: Outcome, line: bytes) -> None:
        """``line`` is the outcome encoded."""
        self.counts.count(outcome)
        self.outcomes.add(line)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SEND_S):
                    await self.outcomes.full.wait()
            self.outcomes.full.clear()
            try:
                await self._round()
            except REDIS_ERRORS as error:
                self._failed(error)
                await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception("sending outcomes and counts failed")
                await asyncio.sleep(RETRY_S)

    async def finish(self, within_s: float = FINISH_S) -> None:
        """The last rows and counts, before the process ends."""
        outcomes, counts = self.outcomes, self.counts
        try:
            async with asyncio.timeout(within_s):
                while outcomes.waiting or counts.changed:
                    self._partly_at = self._counts_at = 0.0
                    await self._round()
        except REDIS_ERRORS as error:
            rows, cells = outcomes.waiting, counts.waiting
            log.error("%d outcomes, %d counts stay unsent: %s", rows, cells, error)
        await self._line.close()

    # How it stands -----------------------------------------------------------------

    @property
    def unacknowledged_s(self) -> float:
        """For how long nothing was acknowledged of what waits for that; 0 if nothing
        does."""
        if self._all_stored():
            return 0.0
        return time.monotonic() - self._settled_at

    def warnings(self) -> list[str]:
        """What a person should know, in whole sentences."""
        told = []
        outcomes, late_s = self.outcomes, self.unacknowledged_s
        if late_s > LATE_S:
            rows = outcomes.emitted - outcomes.acknowledged
            told.append(
                f"For {late_s:.0f} s nothing was stored of {rows} outcomes and "
                f"{self.counts.waiting} counts."
            )
        lost_s = time.monotonic() - outcomes.dropped_at
        if outcomes.dropped and lost_s < LOSS_TOLD_S:
            told.append(
                f"{outcomes.dropped} outcomes were dropped because too many waited, "
                f"the last one {lost_s:.0f} s ago."
            )
        return told

    def _all_stored(self) -> bool:
        outcomes = self.outcomes
        return outcomes.acknowledged >= outcomes.emitted and not self.counts.waiting

    # One round -----------------------------------------------------------------------

    async def _round(self) -> None:
        now = time.monotonic()
        partly, counts_too = now >= self._partly_at, now >= self._counts_at
        if not self._line.is_open:
            await self._open()
        try:
            if counts_too:
                await self._look()
            await self._send_outcomes(partly)
            if counts_too:
                await self._send_counts()
        except EpochChanged:
            # The next round looks first, and sends everything again.
            self._doubt()
            self._counts_at = self._partly_at = 0.0
            return
        except BaseException:
            # What was under way may have come or not, and what came before it may be
            # lost with the server.
            self._doubt()
            raise
        if partly:
            self._partly_at = now + SEND_S
        if counts_too:
            self._counts_at = now + COUNTS_S
        if self._failing:
            self._failing = False
            log.info("outcomes and counts are sent again")

    async def _open(self) -> None:
        await self._line.open()
        append, write = await self._line.call(
            ("SCRIPT", "LOAD", BATCH_APPEND_IN_EPOCH), ("SCRIPT", "LOAD", COUNTS_WRITE)
        )
        self._scripts = (append, write)
        await self._look()

    async def _look(self) -> None:
        """Whose data this is, and what of ours is stored."""
        epoch, rows, counts = await self._line.call(
            ("GET", names.OUTCOMES_EPOCH),
            ("HGET", names.OUTCOMES_ACKS, self._gateway_id),
            ("HGET", names.COUNTS_ACKS, self._gateway_id),
        )
        if epoch is None:
            mark = secrets.token_hex(8)
            _, epoch = await self._line.call(
                ("SET", names.OUTCOMES_EPOCH, mark, "NX"), ("GET", names.OUTCOMES_EPOCH)
            )
        if epoch != self._epoch:
            self._epoch = epoch
            self._doubt()
        self._acknowledged(rows)
        if self.counts.acknowledge(_number(counts)) or self._all_stored():
            self._settled_at = time.monotonic()

    async def _send_outcomes(self, partly: bool) -> None:
        keys = (names.OUTCOMES, names.OUTCOMES_BYTES, names.OUTCOMES_EPOCH)
        script = ("EVALSHA", self._scripts[0], len(keys), *keys)
        known = (self._epoch, self._stream_bytes)
        while batches := self.outcomes.take(partly=partly):
            *dropped, rows = await self._line.call(
                *((*script, *known, *batch.fields) for batch in batches),
                ("HGET", names.OUTCOMES_ACKS, self._gateway_id),
            )
            if min(dropped) < 0:
                raise EpochChanged
            self.outcomes.arrived()
            self._acknowledged(rows)
            # What came meanwhile waits until it fills a batch, or for its time.
            partly = partly and batches[-1].size >= BATCH_BYTES

    async def _send_counts(self) -> None:
        # What grows again meanwhile is for the next time.
        for _ in range(0, self.counts.changed, WRITE_CELLS):
            fields = self.counts.take()
            keys = (
                names.counts(self._gateway_id),
                names.COUNTS_GATEWAYS,
                names.OUTCOMES_EPOCH,
            )
            flat = [part for pair in fields.items() for part in pair]
            values = (self._epoch, self._gateway_id, *flat)
            (written,) = await self._line.call(
                ("EVALSHA", self._scripts[1], len(keys), *keys, *values)
            )
            if written < 0:
                raise EpochChanged

    def _acknowledged(self, rows: bytes | None) -> None:
        if self.outcomes.acknowledge(_number(rows)):
            self._settled_at = time.monotonic()

    def _doubt(self) -> None:
        self.outcomes.doubt()
        self.counts.doubt()

    def _failed(self, error: Exception) -> None:
        # Each outage is told once.
        if not self._failing:
            self._failing = True
            log.warning("outcomes and counts wait: %s", error)


def _number(raw: bytes | None) -> int:
    return int(raw) if raw is not None and raw.isdigit() else 0
