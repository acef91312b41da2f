"""When the failures of a replica are too many: one gateway's own evidence.

Pure: time is passed in, in monotonic seconds. A refusal that is the client's fault,
saturation and a client that left are neither good nor bad and never come here.
"""

from __future__ import annotations

from collections import deque

IN_A_ROW = 5
WINDOW_S = 30
SHARE = 0.5
SHARE_LEAST = 20
# Long enough that quick errors attract nobody, short enough that a replica that is
# well again is found out soon.
DEAR_S = 1.0

FAILURES_IN_A_ROW = "failures_in_a_row"
FAILURE_SHARE = "failure_share"


class Breaker:
    """Counts by the second, for as long as the window is."""

    __slots__ = ("_seconds", "dear_until", "in_a_row")

    def __init__(self) -> None:
        self.in_a_row = 0
        # Until then the last failures make the replica dearer.
        self.dear_until = 0.0
        # [second, good, bad], one for each second that saw an ending.
        self._seconds: deque[list[int]] = deque(maxlen=WINDOW_S)

    def good(self, now: float) -> None:
        self.in_a_row = 0
        self._second(now)[1] += 1

    def bad(self, now: float) -> str:
        """Count a failure; the cause when it is one too many, else nothing."""
        self.in_a_row += 1
        self.dear_until = now + DEAR_S
        self._second(now)[2] += 1
        if self.in_a_row >= IN_A_ROW:
            return FAILURES_IN_A_ROW
        good, bad = self.counts(now)
        if good + bad >= SHARE_LEAST and bad >= SHARE * (good + bad):
            return FAILURE_SHARE
        return ""

    def counts(self, now: float) -> tuple[int, int]:
        """Good and bad endings within the window."""
        oldest = int(now) - WINDOW_S
        recent = [entry for entry in self._seconds if entry[0] > oldest]
        return sum(entry[1] for entry in recent), sum(entry[2] for entry in recent)

    def reset(self) -> None:
        """It was acted upon: what comes next is judged by itself."""
        self.in_a_row = 0
        self._seconds.clear()

    def _second(self, now: float) -> list[int]:
        seconds, second = self._seconds, int(now)
        if seconds and seconds[-1][0] == second:
            return seconds[-1]
        seconds.append([second, 0, 0])
        return seconds[-1]
