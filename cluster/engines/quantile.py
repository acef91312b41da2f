"""A quantile from the buckets of a Prometheus histogram."""

from __future__ import annotations

import math
from collections.abc import Mapping

# With fewer observations the slowest one would be the 99th percentile.
LEAST_COUNT = 100


def p99(buckets: Mapping[float, float]) -> float | None:
    """The value that 99 % of the observations do not exceed, None where they are too
    few or the buckets are none.

    ``buckets`` are counts of all observations up to a bound, infinity among them.
    Within a bucket they are taken to be spread evenly, as Prometheus does; of those
    above the last finite bound no more is known than that bound.
    """
    total = buckets.get(math.inf, 0.0)
    if not total >= LEAST_COUNT or not math.isfinite(total):
        return None
    wanted, low, below = 0.99 * total, 0.0, 0.0
    for bound in sorted(buckets):
        count = buckets[bound]
        if not bound > 0 or not below <= count <= total:
            return None
        if count >= wanted:
            if bound == math.inf:
                break
            return low + (bound - low) * (wanted - below) / (count - below) or None
        low, below = bound, count
    return low or None
