"""What one gateway process knows of each replica, beyond any snapshot.

Keyed by replica id, so that a new revision neither forgets what is in flight nor
that a replica just refused a connection.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from cluster.health.patience import HANG_S
from routing.balance.breaker import Breaker
from routing.balance.hashing import hash_of
from routing.balance.prefixes import Prefixes
from routing.balance.retry_budget import RetryBudget

AVOID_FIRST_S = 2.0
AVOID_MOST_S = 10.0
# A replica that came back gets its share little by little over this time.
SLOW_START_S = 60.0
SLOW_START_LEAST = 0.1
# So many streams must wait in vain before silence means something.
HANG_STREAMS = 2


class Standing(enum.Enum):
    """What the state of a replica means to the router.

    ``UNKNOWN`` is one that nobody has probed or warmed up yet, ``SUSPECT`` one that
    seems to hang, ``TRIAL`` one whose ejection is over and has to be proven,
    ``EJECTED`` one that only requests found fault with: last resorts, in this order.
    ``BARRED`` must not be used: down, stopped, drained or disabled.
    """

    ELIGIBLE = "eligible"
    UNKNOWN = "unknown"
    SUSPECT = "suspect"
    TRIAL = "trial"
    EJECTED = "ejected"
    BARRED = "barred"


class Scrape(NamedTuple):
    """What an engine last said of its load, at a monotonic second: requests that run
    and that wait, and the used part of its KV cache, 0 to 1."""

    at: float
    running: float = 0.0
    waiting: float = 0.0
    kv_cache: float = 0.0


class ReplicaState:
    """The mutable side of a replica. Times are monotonic seconds, 0 for never.

    ``in_flight`` and ``streams`` (those that wait for content) belong to the life of
    requests alone: no probe, no failure and no revision touches them.
    """

    __slots__ = (
        "avoid_until",
        "avoided_s",
        "breaker",
        "busy_since",
        "draining",
        "failures",
        "hang_after_s",
        "id",
        "in_flight",
        "last_byte_at",
        "marked",
        "prefixes",
        "scrape",
        "seed",
        "seen_elsewhere_at",
        "slow_since",
        "standing",
        "streams",
        "trial_since",
        "turn",
    )

    def __init__(self, replica_id: str) -> None:
        self.id = replica_id
        # What it scores with where requests are spread by a hash.
        self.seed = hash_of(replica_id.encode())
        # What its engine said, where that decides.
        self.scrape: Scrape | None = None
        # What it was sent lately, where that decides.
        self.prefixes = Prefixes()
        # Of all replicas of its version, the highest was chosen last in turn.
        self.turn = 0
        self.in_flight = 0
        self.streams = 0
        self.standing = Standing.UNKNOWN
        self.avoid_until = 0.0
        self.avoided_s = 0.0
        self.breaker = Breaker()
        # Failures that are not published yet.
        self.failures = 0
        # When the last content came from it, to this gateway or to another one.
        self.last_byte_at = 0.0
        self.seen_elsewhere_at = 0.0
        self.hang_after_s = HANG_S
        # Since when it has had enough streams to be judged by its silence.
        self.busy_since = 0.0
        # Whether requests ever found fault with it that is not settled yet.
        self.marked = False
        self.draining = False
        self.slow_since = 0.0
        # When the one request began that tries an ejected replica, if one does.
        self.trial_since = 0.0

    def stream_waits(self, now: float) -> None:
        """One more stream waits for this replica, and not for its client."""
        self.streams += 1
        if self.streams == HANG_STREAMS:
            self.busy_since = now

    def stream_rests(self) -> None:
        self.streams -= 1

    def refused(self, now: float) -> None:
        """It refused a connection: stay away for 2 s, doubling up to 10 s."""
        self.avoided_s = min(self.avoided_s * 2 or AVOID_FIRST_S, AVOID_MOST_S)
        self.avoid_until = now + self.avoided_s

    def answered(self) -> None:
        self.avoid_until = self.avoided_s = 0.0

    def cost(self, now: float) -> float:
        """What one more request costs here: load over share, and fresh failures on top,
        so that answering errors quickly never makes a replica attractive."""
        load = self.in_flight + 1
        if self.breaker.dear_until > now:
            load += self.breaker.in_a_row
        return load / self.share(now) if self.slow_since else load

    def share(self, now: float) -> float:
        """Of its full share, what a slow start gives it by now."""
        if not self.slow_since:
            return 1.0
        passed_s = now - self.slow_since
        if passed_s >= SLOW_START_S:
            self.slow_since = 0.0
            return 1.0
        return max(SLOW_START_LEAST, passed_s / SLOW_START_S)


class Group:
    """The replicas of one model, over all revisions. ``trials`` are those that one
    request at a time may try; ``scrapes`` says whether the loads of the engines count.
    """

    __slots__ = ("model", "panic", "retries", "scrapes", "states", "trials")

    def __init__(self, model: str) -> None:
        self.model = model
        self.states: tuple[ReplicaState, ...] = ()
        self.trials: tuple[ReplicaState, ...] = ()
        self.panic = False
        self.retries = RetryBudget()
        self.scrapes = False

    @property
    def trying(self) -> bool:
        return any(state.trial_since for state in self.states)


class ReplicaStates:
    """Every replica and model this process has heard of."""

    def __init__(self) -> None:
        self._states: dict[str, ReplicaState] = {}
        self._groups: dict[str, Group] = {}

    def get(self, replica_id: str) -> ReplicaState:
        state = self._states.get(replica_id)
        if state is None:
            state = self._states[replica_id] = ReplicaState(replica_id)
        return state

    def group(self, model: str) -> Group:
        group = self._groups.get(model)
        if group is None:
            group = self._groups[model] = Group(model)
        return group

    def keep(self, members: dict[str, list[str]]) -> None:
        """Which replicas each model has now. Forget models that are gone, and replicas
        that no snapshot lists and that serve nothing."""
        for model in self._groups.keys() - members.keys():
            del self._groups[model]
        for model, ids in members.items():
            group = self.group(model)
            group.states = tuple(self.get(id_) for id_ in ids)
            group.trials = tuple(s for s in group.states if s in group.trials)
        listed = {id_ for ids in members.values() for id_ in ids}
        for replica_id, state in list(self._states.items()):
            if replica_id not in listed and not state.in_flight:
                del self._states[replica_id]

    def all(self) -> list[ReplicaState]:
        return list(self._states.values())

    def groups(self) -> list[Group]:
        return list(self._groups.values())
