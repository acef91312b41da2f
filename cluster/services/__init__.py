"""Writes to the fleet: keyword-only, ``<entity>_<verb>``, each with its audit row."""

from __future__ import annotations

from cluster.services.artifacts import artifacts_verify
from cluster.services.deep_probes import replicas_deep_probe
from cluster.services.engine_facts import engines_ask
from cluster.services.models import (
    model_create,
    model_delete,
    model_update,
    version_create,
)
from cluster.services.nodes import node_claim, node_register, nodes_watch
from cluster.services.probes import replicas_probe
from cluster.services.reconcile import NodePass, node_reconcile, node_shutdown
from cluster.services.replica_logs import replica_log, replica_log_publish
from cluster.services.replicas import (
    replica_address_set,
    replica_admin_set,
    replica_create,
    replica_remove,
)
from cluster.services.running import (
    DRAIN_DEADLINE_S,
    RunningSet,
    drains_advance,
    replica_drain,
    replica_restart,
    replica_running_set,
)
from cluster.services.samples import samples_prune, samples_write
from cluster.services.transitions import transitions_prune, transitions_write

__all__ = [
    "NodePass",
    "DRAIN_DEADLINE_S",
    "RunningSet",
    "artifacts_verify",
    "drains_advance",
    "engines_ask",
    "model_create",
    "model_delete",
    "model_update",
    "node_claim",
    "node_reconcile",
    "node_register",
    "node_shutdown",
    "nodes_watch",
    "replica_address_set",
    "replica_admin_set",
    "replica_create",
    "replica_drain",
    "replica_log",
    "replica_log_publish",
    "replica_remove",
    "replica_restart",
    "replica_running_set",
    "replicas_deep_probe",
    "replicas_probe",
    "samples_prune",
    "samples_write",
    "transitions_prune",
    "transitions_write",
    "version_create",
]
