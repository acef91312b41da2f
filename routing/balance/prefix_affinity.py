"""A prompt goes where most of its beginning has been before.

An engine keeps the KV cache of what it has lately read: a prompt that begins like an
earlier one is read faster there, and only there. The longest beginning wins among the
replicas whose load lies within the bound; what nobody has seen goes by the hash of its
first block, so that gateways which know nothing of each other agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from routing.balance.consistent_hash import consistent_hash, load_bound
from routing.balance.draw import Rng
from routing.balance.picked import Picked, only
from routing.balance.power_of_two import power_of_two
from routing.balance.router import Replica
from routing.contracts.outcome import Why


def prefix_affinity(
    replicas: Sequence[Replica], rng: Rng, now: float, affinity: Sequence[int] = ()
) -> Picked:
    """``affinity`` is the chain of the prompt; one too short to have a block goes by
    load alone. Of equal beginnings the replica that costs less wins."""
    if not affinity:
        return power_of_two(replicas, rng, now)
    picked = only(replicas) or _longest(replicas, now, affinity)
    picked = picked or consistent_hash(replicas, rng, now, affinity[:1])
    picked.replica.state.prefixes.add(affinity, now)
    return picked


def _longest(
    replicas: Sequence[Replica], now: float, chain: Sequence[int]
) -> Picked | None:
    bound = load_bound(replicas, now)
    found = [
        (replica.state.prefixes.length(chain, now), -replica.state.cost(now), place)
        for place, replica in enumerate(replicas)
        if bound(replica)
    ]
    length, _cost, place = max(found, default=(0, 0.0, 0))
    return Picked(replicas[place], Why.PREFIX) if length else None
