"""One replica after another.

Each gateway process goes round by itself. Whoever was chosen longest ago is next, so
replicas that come, go or are out of rotation disturb nobody's turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from routing.balance.draw import Rng
from routing.balance.picked import Picked, only
from routing.balance.router import Replica
from routing.contracts.outcome import Why


def round_robin(
    replicas: Sequence[Replica], rng: Rng, now: float, affinity: Sequence[int] = ()
) -> Picked:
    """The one whose turn it is. A replica in its slow start lets turns pass by, with
    the probability that its share leaves."""
    if alone := only(replicas):
        return alone
    replica = replicas[0]
    for _each in replicas:
        replica = min(replicas, key=_turn)
        state = replica.state
        # A turn that passes by is over, too.
        state.turn = max(map(_turn, replicas)) + 1
        if not state.slow_since or rng.random() < state.share(now):
            break
    return Picked(replica, Why.TURN)


def _turn(replica: Replica) -> int:
    return replica.state.turn
