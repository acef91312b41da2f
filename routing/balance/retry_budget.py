"""How many second tries a route may make.

When one replica fails, its requests go elsewhere; when all fail, going elsewhere only
adds to what they cannot do. So of the requests of the last seconds a share may be
tried again, and a few always: enough that nobody notices a replica that dies, and that
traffic never doubles. Shaped after the budget of Finagle: a share and a rate, over ten
seconds.

Pure: time is passed in, in monotonic seconds.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 10
SHARE = 0.2
ALWAYS_PER_S = 3


class RetryBudget:
    """The requests and retries of one route at one gateway, by the second."""

    __slots__ = ("_requests", "_retries", "_seconds")

    def __init__(self) -> None:
        # [second, requests, retries] of the window, and their sums.
        self._seconds: deque[list[int]] = deque()
        self._requests = 0
        self._retries = 0

    def request(self, now: float) -> None:
        """Count a request."""
        self._second(now)[1] += 1
        self._requests += 1

    def take(self, now: float) -> bool:
        """Count a retry, if one more may be made."""
        second = self._second(now)
        if self._retries >= ALWAYS_PER_S * WINDOW_S + SHARE * self._requests:
            return False
        second[2] += 1
        self._retries += 1
        return True

    def _second(self, now: float) -> list[int]:
        seconds, second = self._seconds, int(now)
        if seconds and seconds[-1][0] == second:
            return seconds[-1]
        while seconds and seconds[0][0] <= second - WINDOW_S:
            _, requests, retries = seconds.popleft()
            self._requests -= requests
            self._retries -= retries
        seconds.append([second, 0, 0])
        return seconds[-1]
