"""The better of two replicas, each picked at random.

Two random choices keep the longest queue exponentially shorter than one
(Mitzenmacher 1996), without the herd that "always the least loaded" sends to a
replica whose load is not counted yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from routing.balance.draw import Rng
from routing.balance.picked import Picked
from routing.balance.router import Replica
from routing.balance.state import ReplicaState
from routing.contracts.outcome import Why


def power_of_two(
    replicas: Sequence[Replica], rng: Rng, now: float, affinity: Sequence[int] = ()
) -> Picked:
    """Of two different replicas the one that costs less (``ReplicaState.cost``); a tie
    falls at random.

    A replica in its slow start loses against another until its load per share is
    less, so its part grows with its share and is bound by what the others carry. The
    order of the picks is random already, so the first of two equals is a fair choice.
    """
    return better_of_two(replicas, rng, now, ReplicaState.cost, Why.LOWER_COST)


def better_of_two(
    replicas: Sequence[Replica],
    rng: Rng,
    now: float,
    cost_of: Callable[[ReplicaState, float], float],
    lower: Why,
) -> Picked:
    """The same by any cost; ``lower`` is what to say of the one that costs less."""
    count = len(replicas)
    if count == 1:
        return Picked(replicas[0], Why.ONLY)
    first = int(rng.random() * count)
    second = int(rng.random() * (count - 1))
    if second >= first:
        second += 1
    one, other = replicas[first], replicas[second]
    cost, other_cost = cost_of(one.state, now), cost_of(other.state, now)
    if other_cost < cost:
        return Picked(other, lower, other_cost, one, cost)
    why = lower if cost < other_cost else Why.TIE
    return Picked(one, why, cost, other, other_cost)
