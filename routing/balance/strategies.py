"""Which strategy is which function."""

from __future__ import annotations

from routing.balance.consistent_hash import consistent_hash
from routing.balance.least_inflight import least_inflight
from routing.balance.picked import Choose
from routing.balance.power_of_two import power_of_two
from routing.balance.prefix_affinity import prefix_affinity
from routing.balance.queue_aware import queue_aware
from routing.balance.round_robin import round_robin
from routing.contracts.route import Strategy

STRATEGIES: dict[Strategy, Choose] = {
    Strategy.POWER_OF_TWO: power_of_two,
    Strategy.LEAST_INFLIGHT: least_inflight,
    Strategy.ROUND_ROBIN: round_robin,
    Strategy.CONSISTENT_HASH: consistent_hash,
    Strategy.PREFIX_AFFINITY: prefix_affinity,
    Strategy.QUEUE_AWARE: queue_aware,
}
