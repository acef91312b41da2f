"""The times by which a request must get on."""

from __future__ import annotations

from typing import Protocol

from routing.contracts.route import Timeouts
from routing.gateway.clock import NEVER, TICK_S, Clock


class Timed(Protocol):
    """Whoever is told that a time is over."""

    def total_over(self) -> None: ...
    def phase_over(self) -> None: ...
    def held_long(self) -> None:
        """The client has waited long enough for a sign of life."""


class Deadlines:
    """A total, a phase at a time, and how long the status line is held.

    While the client blocks, no phase ends: that is not the replica's silence.
    ``hold_s`` is None where the client gets no comments.
    """

    __slots__ = (
        "_blocked",
        "_clock",
        "_hold_at",
        "_hold_s",
        "_owner",
        "_phase_at",
        "_timeouts",
        "_total_at",
        "wake_at",
    )

    def __init__(
        self,
        clock: Clock,
        owner: Timed,
        timeouts: Timeouts,
        arrived: float,
        hold_s: float | None,
    ) -> None:
        self._clock = clock
        self._owner: Timed | None = owner
        self._timeouts = timeouts
        self._blocked = False
        self._phase_at = NEVER
        self._total_at = arrived + timeouts.total_s
        self._hold_s = hold_s or 0.0
        self._hold_at = NEVER if hold_s is None else arrived + hold_s
        self.wake_at = NEVER
        clock.watch(self)

    def connects(self) -> None:
        self._phase(self._timeouts.connect_s)

    def asks(self) -> None:
        """The request is sent: now for the first content."""
        self._phase(self._timeouts.first_content_s)

    def content(self) -> None:
        """It is there: no more comments, and the idle timer runs."""
        self._hold_at = NEVER
        self.moved()
        self._plan()

    def moved(self) -> None:
        """Something came that counts. The clock looks at the old moment first and
        finds that it has moved: planning anew would cost each chunk."""
        self._phase_at = self._clock.now + self._timeouts.idle_s + TICK_S

    def blocks(self) -> None:
        self._blocked = True

    def resumes(self) -> None:
        self._blocked = False
        self.moved()
        self._plan()

    def end(self) -> None:
        """Each knows the other: without the cycle both go at once."""
        self._owner = None
        self.wake_at = NEVER
        self._clock.forget(self)

    def on_clock(self, now: float) -> None:
        owner = self._owner
        if owner is None:
            return
        if now >= self._total_at:
            owner.total_over()
        elif now >= self._phase_at and not self._blocked:
            owner.phase_over()
        elif now >= self._hold_at:
            owner.held_long()
            self._hold_at = now + self._hold_s
        self._plan()

    def _phase(self, seconds: float) -> None:
        self._phase_at = self._clock.now + seconds + TICK_S
        self._plan()

    def _plan(self) -> None:
        if self._owner is not None:
            phase_at = NEVER if self._blocked else self._phase_at
            self.wake_at = min(phase_at, self._total_at, self._hold_at)
