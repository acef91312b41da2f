"""The better of two replicas, each picked at random.

Two random choices keep the longest queue exponentially shorter than one
(Mitzenmacher 1996), without the herd that "always the least loaded" sends to a
replica whose load is not counted yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from routing.balance.draw import Rng
from routing.balance.router import Replica


class Comparison(NamedTuple):
    """The better replica and what it was compared with; costs are 0 where nothing
    was compared."""

    replica: Replica
    cost: float = 0.0
    other: Replica | None = None
    other_cost: float = 0.0


def power_of_two(replicas: Sequence[Replica], rng: Rng, now: float) -> Comparison:
    """Of two different replicas the one that costs less (``ReplicaState.cost``); a tie
    falls at random.

    ``replicas`` must not be empty. A replica in its slow start loses against another
    until its load per share is less, so its part grows with its share and is bound
    by what the others carry. The order of the picks is random already, so the
    first of two equals is a fair choice.
    """
    count = len(replicas)
    if count == 1:
        return Comparison(replicas[0])
    first = int(rng.random() * count)
    second = int(rng.random() * (count - 1))
    if second >= first:
        second += 1
    one, other = replicas[first], replicas[second]
    cost, other_cost = one.state.cost(now), other.state.cost(now)
    if other_cost < cost:
        return Comparison(other, other_cost, one, cost)
    return Comparison(one, cost, other, other_cost)
