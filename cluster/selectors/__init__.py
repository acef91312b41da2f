"""Reads that join or add the live state."""

from __future__ import annotations

from cluster.selectors.models import model_get, version_get
from cluster.selectors.nodes import node_get, node_list
from cluster.selectors.replicas import (
    ReplicaView,
    replica_get,
    replica_list,
    replica_timeline,
    replica_views,
    states_read,
)

__all__ = [
    "ReplicaView",
    "model_get",
    "node_get",
    "node_list",
    "replica_get",
    "replica_list",
    "replica_timeline",
    "replica_views",
    "states_read",
    "version_get",
]
