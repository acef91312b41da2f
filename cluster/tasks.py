"""Doors for Celery: fetch by id, call the service of the same name, decide retry.

Every task is a nudge: it expires, and one that is lost is made up for by the
schedule. Time limits end a task that hangs; the next turn starts afresh.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any

import redis
from celery import Task, shared_task
from django.utils import timezone
from kombu.exceptions import OperationalError

from cluster import live, services
from cluster.health import Label, Probe, state_merge
from cluster.models import Node

log = logging.getLogger(__name__)

# How often a fresh process is probed, and for how long.
_SOON_S = 0.5
_SOON_LIMIT_S = 60.0


def _nudge(task: Task[Any, Any], *args: Any, queue: str, in_s: float = 0.0) -> None:
    """Send a task that is worth nothing 5 s after its time; a lost one is no loss."""
    with contextlib.suppress(OperationalError):
        task.apply_async(
            args=args, queue=queue, countdown=in_s, expires=in_s + 5, retry=False
        )


def node_nudge(node: Node, *, in_s: float = 0.0) -> None:
    """Ask a node to reconcile; a lost nudge is made up for by the schedule."""
    _nudge(node_reconcile, node.name, queue=node.queue, in_s=in_s)


@shared_task(name="cluster.tasks.node_reconcile", time_limit=60)
def node_reconcile(node_name: str) -> None:
    """Start and stop what is wanted on this node."""
    node = Node.objects.get(name=node_name)
    done = services.node_reconcile(node=node)
    if done is None:
        return
    for replica_id in done.started:
        give_up_at = time.time() + _SOON_LIMIT_S
        _nudge(replica_probe_soon, replica_id, give_up_at, queue="celery", in_s=_SOON_S)
    if done.unverified:
        _nudge(artifacts_verify, node_name, queue=node.queue)
    if done.look_again_s is not None:
        node_nudge(node, in_s=done.look_again_s)


@shared_task(name="cluster.tasks.nodes_reconcile", time_limit=30)
def nodes_reconcile() -> None:
    """Nudge every node."""
    for node in Node.objects.all():
        node_nudge(node)


@shared_task(name="cluster.tasks.artifacts_verify", time_limit=3600)
def artifacts_verify(node_name: str) -> None:
    """Compute the checksums that starts on this node wait for."""
    node = Node.objects.get(name=node_name)
    if services.artifacts_verify(node=node):
        node_nudge(node)


@shared_task(name="cluster.tasks.replicas_probe", time_limit=60)
def replicas_probe() -> None:
    """Probe every replica once."""
    try:
        axes = services.replicas_probe()
    except redis.RedisError as error:
        log.warning("replicas not probed, redis is away: %s", error)
        return
    if any(axis and axis.state is Probe.WARMING for axis in axes.values()):
        _nudge(replicas_deep_probe, queue="celery")


@shared_task(name="cluster.tasks.replicas_deep_probe", time_limit=240)
def replicas_deep_probe() -> None:
    """Warm up what is fresh, and ask what has served nobody for a while."""
    try:
        services.replicas_deep_probe()
    except redis.RedisError as error:
        log.warning("replicas not probed deeply, redis is away: %s", error)


@shared_task(name="cluster.tasks.transitions_write", time_limit=30)
def transitions_write() -> None:
    """Note the states that changed."""
    try:
        services.transitions_write(now=timezone.now())
    except redis.RedisError as error:
        log.warning("transitions not written, redis is away: %s", error)


@shared_task(name="cluster.tasks.transitions_prune", time_limit=600)
def transitions_prune() -> None:
    """Delete the transitions that are too old."""
    services.transitions_prune(now=timezone.now())


@shared_task(name="cluster.tasks.samples_write", time_limit=50)
def samples_write() -> None:
    """Turn the scrapes of the past minutes into rows."""
    try:
        services.samples_write(now=time.time())
    except redis.RedisError as error:
        log.warning("samples not written, redis is away: %s", error)


@shared_task(name="cluster.tasks.samples_prune", time_limit=600)
def samples_prune() -> None:
    """Delete the samples that are too old."""
    services.samples_prune(now=timezone.now())


@shared_task(name="cluster.tasks.replica_probe_soon", time_limit=30)
def replica_probe_soon(replica_id: str, give_up_at: float) -> None:
    """Probe a fresh process again and again until it is up or has ended."""
    services.replicas_probe(replica_ids=[replica_id])
    record = live.records_read([replica_id])[replica_id]
    label = state_merge(record, now=time.time()).label
    if label is Label.WARMING:
        _nudge(replicas_deep_probe, queue="celery")
    if label in (Label.LOADING, Label.WARMING) and time.time() < give_up_at:
        _nudge(replica_probe_soon, replica_id, give_up_at, queue="celery", in_s=_SOON_S)
