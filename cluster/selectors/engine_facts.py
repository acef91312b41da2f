from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import redis

from cluster import live
from cluster.health.engine_facts import EngineFacts, releases_of
from cluster.models import Replica


class EngineView(NamedTuple):
    """``facts`` is None where nobody asked yet, or Redis is away. ``releases`` are
    those of the engine that the replicas of its version run on now."""

    facts: EngineFacts | None
    releases: list[str]

    @property
    def releases_differ(self) -> bool:
        return len(self.releases) > 1


def engine_views(replicas: Iterable[Replica]) -> dict[str, EngineView]:
    """What the engine of each replica says of itself, in one round trip."""
    rows = list(replicas)
    known = _known()
    releases = _releases(known, {row.version_id for row in rows})
    return {
        row.id: EngineView(known.get(row.id), releases[row.version_id]) for row in rows
    }


def engine_releases(version_ids: Collection[int]) -> dict[int, list[str]]:
    """By version the releases of the engine that its replicas run on now."""
    return _releases(_known(), version_ids)


def _known() -> dict[str, EngineFacts]:
    """Nothing is known while Redis is away."""
    try:
        return live.engine_facts_read()
    except redis.RedisError:
        return {}


def _releases(
    known: Mapping[str, EngineFacts], version_ids: Collection[int]
) -> dict[int, list[str]]:
    return {id_: releases_of(known.values(), id_) for id_ in version_ids}
