"""The replica that has the least to do, of all of them.

Exact where one gateway sees all requests of a route. With several, each sees its own
only, and all send to the same idle replica at once: ``power_of_two`` does better there.
"""

from __future__ import annotations

from collections.abc import Sequence

from routing.balance.draw import Rng
from routing.balance.picked import Picked, only
from routing.balance.router import Replica
from routing.contracts.outcome import Why


def least_inflight(
    replicas: Sequence[Replica], rng: Rng, now: float, affinity: Sequence[int] = ()
) -> Picked:
    """The one that costs least (``ReplicaState.cost``); a tie falls at random."""
    if alone := only(replicas):
        return alone
    costs = [replica.state.cost(now) for replica in replicas]
    least = min(costs)
    lowest = [place for place, cost in enumerate(costs) if cost == least]
    place = lowest[int(rng.random() * len(lowest))]
    second = min((p for p in range(len(costs)) if p != place), key=costs.__getitem__)
    return Picked(replicas[place], Why.LEAST, least, replicas[second], costs[second])
