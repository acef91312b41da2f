"""The Celery application; its schedule lives in the database.

``schedule_install`` (a management command that every start runs) writes the
table below into django-celery-beat, where an admin may change the periods.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("sluice")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["cluster", "routing", "console.accounts"])


class Schedule(NamedTuple):
    """One periodic task; it expires before its next turn, so none pile up."""

    name: str
    task: str
    every_s: int


SCHEDULES = (
    Schedule("Probe every replica", "cluster.tasks.replicas_probe", 5),
    Schedule("Probe replicas deeply", "cluster.tasks.replicas_deep_probe", 5),
    Schedule("Ask engines what they are", "cluster.tasks.engines_ask", 10),
    Schedule("Note changed states", "cluster.tasks.transitions_write", 1),
    Schedule("Prune the history of states", "cluster.tasks.transitions_prune", 3600),
    Schedule("Reconcile nodes", "cluster.tasks.nodes_reconcile", 5),
    Schedule("Watch the nodes", "cluster.tasks.nodes_watch", 5),
    Schedule("Look after drains", "cluster.tasks.drains_advance", 5),
    Schedule("Write the samples", "cluster.tasks.samples_write", 60),
    Schedule("Prune the samples", "cluster.tasks.samples_prune", 3600),
    Schedule("Reconcile the snapshot", "routing.tasks.snapshot_reconcile", 15),
    Schedule("Take in the outcomes", "routing.tasks.outcomes_ingest", 1),
    Schedule("Take in the counts", "routing.tasks.counts_ingest", 1),
    Schedule("Close books of gone gateways", "routing.tasks.sources_close", 5),
    Schedule("Prune outcomes and counts", "routing.tasks.telemetry_prune", 300),
    Schedule("Prune the sessions", "console.accounts.tasks.sessions_prune", 600),
)
