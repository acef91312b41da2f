"""One coarse clock for every deadline of the process.

A timer of its own for each deadline of each stream would cost more than the
forwarding. Instead ten times a second everything that waits is looked at once:
deadlines are met within a tenth of a second, and moving one is an assignment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from email.utils import formatdate
from typing import Protocol

log = logging.getLogger(__name__)

TICK_S = 0.1
NEVER = float("inf")


class Waits(Protocol):
    """``wake_at`` is monotonic seconds; ``on_clock`` must move or end it."""

    wake_at: float

    def on_clock(self, now: float) -> None: ...


class Clock:
    """``now`` is monotonic and at most a tick old; ``date`` is a header line."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.date = b""
        self._date_for = 0
        self._watched: set[Waits] = set()
        self._handle: asyncio.TimerHandle | None = None
        self._set_date()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tick(loop)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def watch(self, waits: Waits) -> None:
        self._watched.add(waits)

    def forget(self, waits: Waits) -> None:
        self._watched.discard(waits)

    def after(self, seconds: float) -> float:
        """A moment that is surely not before ``seconds`` from now."""
        return self.now + seconds + TICK_S

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._handle = loop.call_later(TICK_S, self._tick, loop)
        now = self.now = time.monotonic()
        self._set_date()
        for waits in [w for w in self._watched if w.wake_at <= now]:
            try:
                waits.on_clock(now)
            except Exception:
                waits.wake_at = NEVER
                log.exception("a deadline failed")

    def _set_date(self) -> None:
        second = int(time.time())
        if second != self._date_for:
            self._date_for = second
            self.date = f"date: {formatdate(second, usegmt=True)}\r\n".encode()
