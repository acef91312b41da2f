from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import redis

from cluster import live
from cluster.health.engine_facts import EngineFacts, engine_releases
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
    try:
        known = live.engine_facts_read()
    except redis.RedisError:
        return {row.id: EngineView(None, []) for row in rows}
    releases = {
        id_: engine_releases(known.values(), id_)
        for id_ in {row.version_id for row in rows}
    }
    return {
        row.id: EngineView(known.get(row.id), releases[row.version_id]) for row in rows
    }
