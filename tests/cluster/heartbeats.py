"""Heartbeats of nodes that are not there."""

from __future__ import annotations

from cluster import live, presence
from cluster.health.node import NodeFacts, node_name

FACTS = NodeFacts(
    *("10.0.0.7", "gpu-a", "boot", 1, {"sluice": "0"}, 0.0, 8, 0.5),
    *(64_000, 32_000, 500_000, 400_000),
)


def silent(name: str, for_s: float) -> None:
    """As after so long a silence."""
    client = live.redis_client()
    client.hset(node_name(name), "at", str(presence.redis_time() - for_s))
