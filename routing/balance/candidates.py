"""The order in which one request tries replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from routing.balance.draw import Draw, Rng
from routing.balance.picked import Picked
from routing.balance.router import Replica, Route, Version
from routing.balance.state import Standing
from routing.balance.strategies import STRATEGIES
from routing.contracts.outcome import Choice, Tier, Why


class Candidate(NamedTuple):
    """``choice`` says why it is this replica."""

    version: Version
    replica: Replica
    choice: Choice

    @property
    def trial(self) -> bool:
        """Whether this request decides on the return of an ejected replica."""
        return self.choice.why is Why.TRIAL


_ELIGIBLE = Standing.ELIGIBLE
_UNKNOWN = Standing.UNKNOWN
_SUSPECT = Standing.SUSPECT
_OUT = (Standing.TRIAL, Standing.EJECTED)


def _ready(version: Version, now: float) -> list[Replica]:
    return [
        replica
        for replica in version.replicas
        if (state := replica.state).standing is _ELIGIBLE and state.avoid_until <= now
    ]


def _eligible(version: Version, now: float) -> list[Replica]:
    return [r for r in version.replicas if r.state.standing is _ELIGIBLE]


def _unknown(version: Version, now: float) -> list[Replica]:
    return [r for r in version.replicas if r.state.standing is _UNKNOWN]


def _suspect(version: Version, now: float) -> list[Replica]:
    return [r for r in version.replicas if r.state.standing is _SUSPECT]


def _out(version: Version, now: float) -> list[Replica]:
    return [r for r in version.replicas if r.state.standing in _OUT]


_Find = Callable[[Version, float], list[Replica]]

# Best first. A replica that just refused a connection is used only when no other
# is there, one that nobody has probed only when no eligible one is, one that hangs
# or is ejected only before refusing; a replica that is down, drained or disabled never.
_TIERS: tuple[tuple[Tier, _Find], ...] = (
    (Tier.READY, _ready),
    (Tier.ELIGIBLE, _eligible),
    (Tier.UNKNOWN, _unknown),
    (Tier.SUSPECT, _suspect),
    (Tier.OUT, _out),
)


class Candidates:
    """The draw of a version, then one replica after another, none of them twice.

    In every tier the drawn version comes first, then the other versions of the
    route by their remaining weights; one of weight 0 never. With ``only`` there is
    no draw and no other version. Among the replicas of a tier the strategy of the route
    chooses; ``affinity`` are hashes of what the request is to stay with, if anything.
    """

    __slots__ = (
        "_affinity",
        "_only",
        "_rng",
        "_route",
        "_tried",
        "first",
        "probability",
    )

    def __init__(
        self,
        route: Route,
        rng: Rng,
        only: Version | None = None,
        affinity: Sequence[int] = (),
    ) -> None:
        self._route = route
        self._rng = rng
        self._only = only
        self._affinity = affinity
        self._tried: list[Replica] = []
        self.first: Version | None = only
        self.probability = 1.0 if only is not None else 0.0
        if only is None and route.draw:
            self.first, self.probability = route.draw.take(rng)

    def next(self, now: float) -> Candidate | None:
        """The next replica to try, None when none is left. ``now`` is monotonic."""
        if self.first is None:
            return None
        trials = self._route.group.trials
        if trials and not self._tried and (candidate := self._trial(self.first)):
            return candidate
        for tier, find in _TIERS:
            if candidate := self._pick(self.first, tier, find, now):
                return candidate
            if self._only is None and len(self._route.versions) > 1:
                for version in self._others():
                    if candidate := self._pick(version, tier, find, now):
                        return candidate
        return None

    def _trial(self, version: Version) -> Candidate | None:
        """The replica of the drawn version that is due for a trial, if nobody tries
        one of this route just now. Should it fail, another may still serve."""
        trials = self._route.group.trials
        if self._route.group.trying:
            return None
        for replica in version.replicas:
            if replica.state in trials:
                self._tried.append(replica)
                total = len(version.replicas)
                return Candidate(
                    version, replica, Choice(Tier.OUT, Why.TRIAL, total=total)
                )
        return None

    def _pick(
        self, version: Version, tier: Tier, find: _Find, now: float
    ) -> Candidate | None:
        tried = self._tried
        replicas = find(version, now)
        if tried:
            replicas = [replica for replica in replicas if replica not in tried]
        if not replicas:
            return None
        choose = STRATEGIES[self._route.entry.settings.strategy]
        picked = choose(replicas, self._rng, now, self._affinity)
        tried.append(picked.replica)
        choice = _choice(tier, picked, len(replicas), len(version.replicas))
        return Candidate(version, picked.replica, choice)

    def _others(self) -> Iterator[Version]:
        """The other versions with a weight, in an order drawn by weight."""
        left = [v for v in self._route.versions.values() if v is not self.first]
        while draw := Draw([(version, version.weight_bp) for version in left]):
            version, _ = draw.take(self._rng)
            left.remove(version)
            yield version


def _choice(tier: Tier, picked: Picked, of: int, total: int) -> Choice:
    _, why, cost, other, other_cost = picked
    if other is None:
        return Choice(tier, why, of, total)
    return Choice(tier, why, of, total, round(cost, 3), other.id, round(other_cost, 3))
