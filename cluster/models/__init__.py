"""Facts about the fleet: nodes, models, versions, replicas, and the audit record."""

from __future__ import annotations

from cluster.models.audit import AuditRecord
from cluster.models.model import Engine, Kind, Model, Version
from cluster.models.node import Node
from cluster.models.replica import Driver, Replica
from cluster.models.sample import Sample

__all__ = [
    "AuditRecord",
    "Driver",
    "Engine",
    "Kind",
    "Model",
    "Node",
    "Replica",
    "Sample",
    "Version",
]
