"""Doors for Celery: call the service, and leave the retry to the schedule."""

from __future__ import annotations

from celery import shared_task

from cluster.actor import SYSTEM
from routing.services.reconcile import routing_reconcile


@shared_task(name="routing.tasks.snapshot_reconcile")
def snapshot_reconcile() -> None:
    """Make good whatever a lost notice, a crash or an emptied Redis left behind."""
    routing_reconcile(actor=SYSTEM)
