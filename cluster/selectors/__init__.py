"""Reads that join or add the live state."""

from __future__ import annotations

from cluster.selectors.replicas import ReplicaView, replica_list, replica_views

__all__ = ["ReplicaView", "replica_list", "replica_views"]
