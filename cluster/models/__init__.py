"""Facts about the fleet: nodes, models, versions, replicas, and the audit record."""

from __future__ import annotations

from cluster.models.audit import AuditRecord
from cluster.models.model import Engine, Kind, Model, Version
from cluster.models.node import Node
from cluster.models.replica import Driver, Replica
from cluster.models.sample import Sample
from cluster.models.transition import ReplicaTransition

__all__ = [
    "AuditRecord",
    "Driver",
    "Engine",
    "Kind",
    "Model",
    "Node",
    "Replica",
    "ReplicaTransition",
    "Sample",
    "Version",
]
