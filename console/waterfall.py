"""The phases of one request on one scale, from its arrival to its end.

Phases never overlap: each begins where the one before ended or later, and what lies
between is a phase of its own, not accounted for. So their lengths add up to the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from routing.contracts.outcome import Attempt, Outcome

# A shorter gap is the rounding of moments, not time that somebody spent.
_GAP_MS = 0.005
# A narrower bar cannot be seen.
_BAR_LEAST = 0.4


class Kind(StrEnum):
    RECEIVE = "receive"
    KEY = "key"
    ROUTING = "routing"
    QUEUE = "queue"
    CONNECT = "connect"
    WAIT = "wait"
    PREFILL = "prefill"
    DECODE = "decode"
    DELIVERY = "delivery"
    GAP = "gap"


@dataclass(frozen=True)
class Phase:
    """``attempt`` counts from 1, 0 for what belongs to none. ``share`` is of the
    whole; ``x`` and ``width`` are percentages for drawing."""

    kind: Kind
    start_ms: float
    end_ms: float
    attempt: int
    whole_ms: float

    @property
    def length_ms(self) -> float:
        return self.end_ms - self.start_ms

    @property
    def share(self) -> float:
        return self.length_ms / self.whole_ms if self.whole_ms else 0.0

    @property
    def width(self) -> str:
        return f"{self._width:.3f}%"

    @property
    def x(self) -> str:
        start = self.start_ms / self.whole_ms * 100 if self.whole_ms else 0.0
        return f"{min(start, 100 - self._width):.3f}%"

    @property
    def _width(self) -> float:
        return max(self.share * 100, _BAR_LEAST)


_Leaf = tuple[Kind, float | None, float | None, int]


def phases(outcome: Outcome) -> list[Phase]:
    """In the order of time. Moments that contradict each other are cut to fit."""
    whole = max(outcome.duration_ms, 0.0)
    found: list[Phase] = []
    here = 0.0
    for kind, start, end, attempt in _leaves(outcome):
        if end is None:
            continue
        start = min(max(here if start is None else start, here), whole)
        end = min(max(end, start), whole)
        if start - here > _GAP_MS:
            found.append(Phase(Kind.GAP, here, start, 0, whole))
        else:
            start = here
        found.append(Phase(kind, start, end, attempt, whole))
        here = end
    if whole - here > _GAP_MS:
        found.append(Phase(Kind.GAP, here, whole, 0, whole))
    return found


def ticks(whole_ms: float) -> list[tuple[str, float]]:
    """Where the scale has marks: place in percent, and the time there."""
    return [(f"{share * 100:g}%", whole_ms * share) for share in (0, 0.5, 1)]


def _leaves(outcome: Outcome) -> Iterator[_Leaf]:
    """Each phase with its ends; no start means where the one before ended, no end
    that it never came to it."""
    yield Kind.RECEIVE, 0.0, outcome.received_ms, 0
    yield Kind.KEY, None, outcome.authorized_ms, 0
    queued, admitted = outcome.queue_ms, outcome.admitted_ms
    if admitted is not None:
        yield Kind.ROUTING, None, admitted - queued, 0
        if queued:
            yield Kind.QUEUE, None, admitted, 0
    elif queued:
        # It gave up in the queue: that is where it was to the end.
        yield Kind.ROUTING, None, outcome.duration_ms - queued, 0
        yield Kind.QUEUE, None, outcome.duration_ms, 0
    for number, attempt in enumerate(outcome.attempts, 1):
        last = number == len(outcome.attempts)
        yield from _attempt(outcome if last else None, attempt, number)
    if outcome.last_byte_ms is not None:
        yield Kind.DELIVERY, None, outcome.duration_ms, 0


def _attempt(outcome: Outcome | None, attempt: Attempt, number: int) -> Iterator[_Leaf]:
    """``outcome`` is given for the last attempt: its are the moments of the answer."""
    start, end = attempt.at_ms, attempt.at_ms + attempt.duration_ms
    if attempt.connect_ms is not None:
        connected = start + attempt.connect_ms
        yield Kind.CONNECT, start, connected, number
        start = connected
    first_byte = outcome.first_byte_ms if outcome else None
    content = outcome.first_content_ms if outcome else None
    last_byte = outcome.last_byte_ms if outcome else None
    waited = [moment for moment in (first_byte, content, last_byte) if moment]
    if not waited:
        if end > start:
            yield Kind.WAIT, start, end, number
        return
    yield Kind.WAIT, start, waited[0], number
    if first_byte is not None and content is not None:
        yield Kind.PREFILL, None, content, number
    yield Kind.DECODE, None, last_byte if last_byte is not None else end, number
