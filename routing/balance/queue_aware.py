"""The better of two replicas by what their engines say of themselves.

A gateway sees its own requests. Where others send there too, the engine's queue and the
free part of its KV cache tell more, some seconds late. Two random choices keep all
gateways from running to the same replica until the next word of it (Mitzenmacher,
"How useful is old information?", 2000).
"""

from __future__ import annotations

from collections.abc import Sequence

from routing.balance.draw import Rng
from routing.balance.picked import Picked
from routing.balance.power_of_two import better_of_two
from routing.balance.router import Replica
from routing.balance.state import ReplicaState
from routing.contracts.outcome import Why

# Engines are asked every five seconds; one that was missed three times is not known.
STALE_S = 15.0
# The least free part of a KV cache that is reckoned with.
FREE_LEAST = 0.05
# What is not known counts as full: it is taken when the other is not known either.
FULL = 1e6


def queue_aware(
    replicas: Sequence[Replica], rng: Rng, now: float, affinity: Sequence[int] = ()
) -> Picked:
    """Of two different replicas the one with less pressure; a tie falls at random."""
    return better_of_two(replicas, rng, now, pressure, Why.LOWER_PRESSURE)


def pressure(state: ReplicaState, now: float) -> float:
    """What one more request meets: those that run (as this gateway or as the engine
    counts them, whichever is more) and those that wait, over the free part of the KV
    cache. An engine that does not tell one of these has none of it."""
    cost, scrape = state.cost(now), state.scrape
    if scrape is None or now - scrape.at > STALE_S:
        return FULL + cost
    load = max(cost, scrape.running + 1) + scrape.waiting
    return load / max(1.0 - scrape.kv_cache, FREE_LEAST)
