"""Doors for Celery: fetch by id, call the service of the same name, decide retry."""

from __future__ import annotations

import contextlib

from celery import shared_task
from kombu.exceptions import OperationalError

from cluster.models import Node


def node_nudge(node: Node) -> None:
    """Ask a node to reconcile now; a lost nudge is made up for by the schedule."""
    with contextlib.suppress(OperationalError):
        node_reconcile.apply_async(
            args=(node.name,), queue=node.queue, expires=5, retry=False
        )


@shared_task(name="cluster.tasks.node_reconcile")
def node_reconcile(node_name: str) -> None:
    """Start and stop what is wanted on this node."""


@shared_task(name="cluster.tasks.nodes_reconcile")
def nodes_reconcile() -> None:
    """Nudge every node."""
    for node in Node.objects.all():
        node_nudge(node)


@shared_task(name="cluster.tasks.replicas_probe")
def replicas_probe() -> None:
    """Probe every replica once."""
