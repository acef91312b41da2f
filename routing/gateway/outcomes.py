"""Outcomes on their way into the stream: numbered, bounded, kept until stored."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import NamedTuple

from routing.contracts.outcome import batch_fields

MIB = 1024 * 1024
# What waits to be sent, and what was sent and may be needed again.
WAITING_BYTES = 8 * MIB
SENT_BYTES = 4 * MIB
BATCH_BYTES = 64 * 1024
# So much is worth a call before its time; each costs as much as a batch does.
CALL_BYTES = 4 * BATCH_BYTES


class SentBatch(NamedTuple):
    """``fields`` are name, value, … as the stream gets them, the lines last."""

    first: int
    last: int
    fields: tuple[str | int | bytes, ...]
    size: int


class Outcomes:
    """``emitted`` is the number of the last outcome; ``dropped`` counts those that went
    unsent because too many waited, the last of them at ``dropped_at`` (monotonic).

    What was sent is kept until it is acknowledged, within its bound: should Redis
    have lost it, it is sent again before anything new.
    """

    def __init__(self, gateway_id: str) -> None:
        self._gateway_id = gateway_id
        self._lines: deque[bytes] = deque()
        self._line_bytes = 0
        self._again: deque[SentBatch] = deque()
        self._sent: deque[SentBatch] = deque()
        self._kept_bytes = 0
        self.emitted = 0
        self.dropped = 0
        self.dropped_at = 0.0
        self.acknowledged = 0
        # Set when so much waits that it should go before its time.
        self.full = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many are not in the stream yet, as far as is known."""
        again = sum(batch.last - batch.first + 1 for batch in self._again)
        return len(self._lines) + again

    def add(self, line: bytes) -> None:
        """The next outcome, encoded."""
        self.emitted += 1
        self._lines.append(line)
        self._line_bytes += len(line)
        if self._line_bytes >= CALL_BYTES:
            self.full.set()
            if self._line_bytes > WAITING_BYTES:
                self._drop()

    def _drop(self) -> None:
        while self._line_bytes > WAITING_BYTES:
            self._line_bytes -= len(self._lines.popleft())
            self.dropped += 1
        self.dropped_at = time.monotonic()

    def take(self, *, partly: bool) -> list[SentBatch]:
        """The next batches to send in one call; one that is not full only ``partly``,
        and as the last one."""
        batches: list[SentBatch] = []
        while sum(batch.size for batch in batches) < CALL_BYTES:
            batch = self._next(partly)
            if batch is None:
                break
            batches.append(batch)
        return batches

    def _next(self, partly: bool) -> SentBatch | None:
        if self._again:
            batch = self._again.popleft()
        elif self._line_bytes >= BATCH_BYTES or (partly and self._lines):
            batch = self._batch()
            self._kept_bytes += batch.size
        else:
            return None
        self._sent.append(batch)
        return batch

    def _batch(self) -> SentBatch:
        first = self.emitted - len(self._lines) + 1
        lines: list[bytes] = []
        size = 0
        while self._lines and size < BATCH_BYTES:
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        self._line_bytes -= size
        fields = batch_fields(self._gateway_id, first, lines)
        flat = tuple(part for pair in fields.items() for part in pair)
        return SentBatch(first, first + len(lines) - 1, flat, size)

    def arrived(self) -> None:
        """All that was taken is in the stream. Beyond the bound, what is oldest is
        kept no longer: it is gone only if the stream loses it."""
        while self._kept_bytes > SENT_BYTES and self._sent:
            self._kept_bytes -= self._sent.popleft().size

    def doubt(self) -> None:
        """Redis may have lost what it was sent: all that is kept goes again."""
        self._again.extendleft(reversed(self._sent))
        self._sent.clear()

    def acknowledge(self, number: int) -> bool:
        """All up to this number are stored for good; whether that is news."""
        if number <= self.acknowledged:
            return False
        self.acknowledged = number
        for kept in (self._sent, self._again):
            while kept and kept[0].last <= number:
                self._kept_bytes -= kept.popleft().size
        return True
