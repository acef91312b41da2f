"""Reads that join or add the live state."""

from __future__ import annotations

from cluster.selectors.engine_facts import EngineView, engine_releases, engine_views
from cluster.selectors.inflight import InFlight, inflight_count, inflight_read
from cluster.selectors.models import model_get, version_get
from cluster.selectors.nodes import NodeView, node_get, node_list, node_views
from cluster.selectors.replicas import (
    ReplicaView,
    replica_get,
    replica_list,
    replica_timeline,
    replica_views,
    states_read,
)

__all__ = [
    "EngineView",
    "InFlight",
    "NodeView",
    "ReplicaView",
    "engine_releases",
    "engine_views",
    "inflight_count",
    "inflight_read",
    "model_get",
    "node_get",
    "node_list",
    "node_views",
    "replica_get",
    "replica_list",
    "replica_timeline",
    "replica_views",
    "states_read",
    "version_get",
]
