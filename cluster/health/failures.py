"""How often requests failed at a replica, as its gateways counted, by the minute.

One Redis hash for each replica, ``failures_name(id)``: minute since 1970 (Redis's
clock) → failures of the replica's own making. Gateways add to it once a second; a
count whose acknowledgement was lost is added again. The hash goes when nothing
failed for two hours.
"""

from __future__ import annotations

from collections.abc import Mapping

FAILURES_KEPT_S = 7200
_HOUR_MIN = 60


def failures_name(replica_id: str) -> str:
    return f"sluice:failures:{replica_id}"


def minute_of(now: float) -> int:
    """``now`` in Unix seconds."""
    return int(now // 60)


def failures_of_hour(counts: Mapping[bytes, bytes], now: float) -> int:
    """The failures of the last 60 minutes, the one that runs included."""
    oldest = minute_of(now) - _HOUR_MIN
    return sum(
        int(count)
        for minute, count in counts.items()
        if minute.isdigit() and count.isdigit() and int(minute) > oldest
    )
