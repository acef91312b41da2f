"""How long a replica is waited for: as long as anybody, and longer where its engine
itself says that it is slow.

The engine's 99th percentiles are those since its start, from its own histograms.
Engines without such a histogram are given the fixed times.
"""

from __future__ import annotations

from cluster.health.load import Load

DEEP_TIMEOUT_S = 10.0
# A deep probe, or a first request, is given up then, whatever the engine says.
DEEP_MOST_S = 120.0
# Silence on all streams of a replica while another of its model speaks.
HANG_S = 30.0
HANG_MOST_S = 300.0
_DEEP_FACTOR = 5
_HANG_FACTOR = 10


def deep_timeout_s(load: Load | None) -> float:
    """For a request of one token: 10 s, or 5 times the time to first token that only
    one request in a hundred exceeds."""
    usual_s = (load and load.ttft_p99_s) or 0.0
    return min(max(DEEP_TIMEOUT_S, _DEEP_FACTOR * usual_s), DEEP_MOST_S)


def hang_after_s(load: Load | None) -> float:
    """For silence to mean something: 30 s, or 10 times the gap between tokens that
    only one in a hundred exceeds."""
    usual_s = (load and load.gap_p99_s) or 0.0
    return min(max(HANG_S, _HANG_FACTOR * usual_s), HANG_MOST_S)
