"""What the gateways apply of one route, as opposed to what is wanted."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass

import msgspec
import redis

from routing.contracts.snapshot import SchemaUnknown, snapshot_decode
from routing.models import Revision
from routing.selectors.gateways import gateway_list


@dataclass(frozen=True)
class AppliedShare:
    """One set of weights in force at ``gateways`` of the live gateways.

    ``revision`` is the oldest one among them. ``weights`` is None when this
    database does not hold that revision.
    """

    revision: int
    gateways: int
    weights: dict[str, int] | None


@dataclass(frozen=True)
class RouteApplied:
    """The weights of one route in every live gateway; ``newest`` is what all of
    them should have reached."""

    newest: int
    of: int
    shares: list[AppliedShare]
    up_to_date: int

    @property
    def complete(self) -> bool:
        return self.of > 0 and self.up_to_date == self.of


def route_applied(*, model: str) -> RouteApplied | None:
    """None while Redis is away. The most common weights stand first."""
    try:
        gateways = gateway_list()
    except redis.RedisError:
        return None
    newest = Revision.objects.only("epoch", "number").first()
    wanted = (newest.epoch, newest.number) if newest else (0, 0)
    counts = Counter((gateway.epoch, gateway.revision) for gateway in gateways)
    merged: dict[str, AppliedShare] = {}
    for (epoch, revision), count in sorted(counts.items()):
        weights = _weights_at(epoch, revision, model)
        known = merged.get(repr(weights), AppliedShare(revision, 0, weights))
        merged[repr(weights)] = AppliedShare(
            known.revision, known.gateways + count, weights
        )
    return RouteApplied(
        newest=wanted[1],
        of=len(gateways),
        shares=sorted(merged.values(), key=lambda share: -share.gateways),
        up_to_date=sum(n for number, n in counts.items() if number >= wanted),
    )


def _weights_at(epoch: int, revision: int, model: str) -> dict[str, int] | None:
    """The weights of one route in one revision; None if that is not on record."""
    if revision == 0:
        return {}
    row = Revision.objects.only("digest").filter(number=revision, epoch=epoch).first()
    if row is None:
        return None
    try:
        return _weights_of_routes(row.digest, revision).get(model, {})
    except (SchemaUnknown, msgspec.DecodeError):
        return None


@functools.lru_cache(maxsize=8)
def _weights_of_routes(digest: str, revision: int) -> dict[str, dict[str, int]]:
    """By model. The digest names the content, so that a polling page loads and
    decodes each only once."""
    row = Revision.objects.only("body").get(number=revision, digest=digest)
    return {
        route.model: {v.name: v.weight_bp for v in route.versions if v.weight_bp}
        for route in snapshot_decode(bytes(row.body)).routes
    }
