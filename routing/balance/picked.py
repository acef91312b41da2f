"""What a strategy answers: a replica, and why it is this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from routing.balance.draw import Rng
from routing.balance.router import Replica
from routing.contracts.outcome import Why


class Picked(NamedTuple):
    """``other`` is what the replica was compared with, None where nothing was; the
    costs are ``ReplicaState.cost`` then."""

    replica: Replica
    why: Why
    cost: float = 0.0
    other: Replica | None = None
    other_cost: float = 0.0


# Given the replicas that may be chosen (never none), randomness, the monotonic time,
# and hashes of what the request is to stay with (none where its route asks for none).
Choose = Callable[[Sequence[Replica], Rng, float, Sequence[int]], Picked]


def only(replicas: Sequence[Replica]) -> Picked | None:
    """The one that there is, if there is one only."""
    return Picked(replicas[0], Why.ONLY) if len(replicas) == 1 else None
