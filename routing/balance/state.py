"""What one gateway process knows of each replica, beyond any snapshot.

Keyed by replica id, so that a new revision neither forgets what is in flight nor
that a replica just refused a connection.
"""

from __future__ import annotations

import enum

AVOID_FIRST_S = 2.0
AVOID_MOST_S = 10.0


class Standing(enum.Enum):
    """What the live record of a replica means to the router.

    ``UNKNOWN`` is a replica that nobody has probed yet: the last resort.
    ``BARRED`` one that must not be used: down, stopped, drained or disabled.
    """

    ELIGIBLE = "eligible"
    UNKNOWN = "unknown"
    BARRED = "barred"


class ReplicaState:
    """The mutable side of a replica; ``avoid_until`` is monotonic seconds."""

    __slots__ = ("avoid_until", "avoided_s", "id", "in_flight", "standing")

    def __init__(self, replica_id: str) -> None:
        self.id = replica_id
        self.in_flight = 0
        self.standing = Standing.UNKNOWN
        self.avoid_until = 0.0
        self.avoided_s = 0.0

    def refused(self, now: float) -> None:
        """It refused a connection: stay away for 2 s, doubling up to 10 s."""
        self.avoided_s = min(self.avoided_s * 2 or AVOID_FIRST_S, AVOID_MOST_S)
        self.avoid_until = now + self.avoided_s

    def answered(self) -> None:
        self.avoid_until = self.avoided_s = 0.0


class ReplicaStates:
    """Every replica this process has heard of."""

    def __init__(self) -> None:
        self._states: dict[str, ReplicaState] = {}

    def get(self, replica_id: str) -> ReplicaState:
        state = self._states.get(replica_id)
        if state is None:
            state = self._states[replica_id] = ReplicaState(replica_id)
        return state

    def keep(self, replica_ids: set[str]) -> None:
        """Forget replicas that no snapshot lists and that serve nothing."""
        for replica_id, state in list(self._states.items()):
            if replica_id not in replica_ids and not state.in_flight:
                del self._states[replica_id]

    def all(self) -> list[ReplicaState]:
        return list(self._states.values())
