"""Requests of one kind stay with one replica, as long as it is not too busy.

Rendezvous hashing (Thaler and Ravishankar 1998): every replica scores against the hash
of what the request is to stay with, and the highest score wins. Whoever goes takes only
its own requests along, whoever comes gets an even part of everybody's. A bound on the
load (Mirrokni, Thorup and Zadimoghaddam 2016) sends what would be too much for the
winner on to the next one in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from routing.balance.draw import Rng
from routing.balance.hashing import MASK, mixed
from routing.balance.picked import Picked, only
from routing.balance.router import Replica
from routing.contracts.outcome import Why

# No replica gets more than so much of its even share of what is in flight.
LOAD_FACTOR = 1.25


def consistent_hash(
    replicas: Sequence[Replica], rng: Rng, now: float, affinity: Sequence[int] = ()
) -> Picked:
    """The replica with the highest score whose load lies within the bound.
    ``affinity`` holds the hash; without it the replica is drawn at random."""
    if alone := only(replicas):
        return alone
    key = affinity[0] if affinity else int(rng.random() * MASK)
    ranked = sorted(
        replicas, key=lambda replica: mixed(replica.state.seed ^ key), reverse=True
    )
    fits = load_bound(replicas, now)
    for place, replica in enumerate(ranked):
        if fits(replica):
            return Picked(replica, Why.OVERFLOW if place else Why.HASH)
    return Picked(ranked[0], Why.HASH)


def load_bound(replicas: Sequence[Replica], now: float) -> Callable[[Replica], bool]:
    """Whether a replica may take one more, by the requests of this gateway. The bound
    of one in its slow start is as much smaller as its share."""
    in_flight = sum(replica.state.in_flight for replica in replicas)
    shares = sum(replica.state.share(now) for replica in replicas)
    most = LOAD_FACTOR * (in_flight + 1) / shares

    def fits(replica: Replica) -> bool:
        state = replica.state
        # One is never too much: else few requests would not stay anywhere.
        return state.in_flight < max(1.0, most * state.share(now))

    return fits
