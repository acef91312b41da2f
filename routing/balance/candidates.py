"""The order in which one request tries replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from routing.balance.draw import Draw, Rng
from routing.balance.power_of_two import power_of_two
from routing.balance.router import Replica, Route, Version
from routing.balance.state import Standing


class Candidate(NamedTuple):
    version: Version
    replica: Replica


_ELIGIBLE = Standing.ELIGIBLE
_UNKNOWN = Standing.UNKNOWN


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


_Tier = Callable[[Version, float], list[Replica]]

# Best first. A replica that just refused a connection is used only when no other
# is there, one that nobody has probed only when no eligible one is; a replica
# that is down, drained or disabled never.
_TIERS: tuple[_Tier, ...] = (_ready, _eligible, _unknown)


class Candidates:
    """The draw of a version, then one replica after another, none of them twice.

    In every tier the drawn version comes first, then the other versions of the
    route by their remaining weights; one of weight 0 never. With ``only`` there is
    no draw and no other version.
    """

    __slots__ = ("_only", "_rng", "_route", "_tried", "first", "probability")

    def __init__(self, route: Route, rng: Rng, only: Version | None = None) -> None:
        self._route = route
        self._rng = rng
        self._only = only
        self._tried: list[Replica] = []
        self.first: Version | None = only
        self.probability = 1.0 if only is not None else 0.0
        if only is None and route.draw:
            self.first, self.probability = route.draw.take(rng)

    def next(self, now: float) -> Candidate | None:
        """The next replica to try, None when none is left. ``now`` is monotonic."""
        if self.first is None:
            return None
        for tier in _TIERS:
            if candidate := self._pick(self.first, tier, now):
                return candidate
            if self._only is None and len(self._route.versions) > 1:
                for version in self._others():
                    if candidate := self._pick(version, tier, now):
                        return candidate
        return None

    def _pick(self, version: Version, tier: _Tier, now: float) -> Candidate | None:
        tried = self._tried
        replicas = tier(version, now)
        if tried:
            replicas = [replica for replica in replicas if replica not in tried]
        if not replicas:
            return None
        replica = power_of_two(replicas, self._rng)
        tried.append(replica)
        return Candidate(version, replica)

    def _others(self) -> Iterator[Version]:
        """The other versions with a weight, in an order drawn by weight."""
        left = [v for v in self._route.versions.values() if v is not self.first]
        while draw := Draw([(version, version.weight_bp) for version in left]):
            version, _ = draw.take(self._rng)
            left.remove(version)
            yield version
