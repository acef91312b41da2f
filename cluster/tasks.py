"""Doors for Celery: fetch by id, call the service of the same name, decide retry.

Every task is a nudge: one that is lost is made up for by the schedule. Time limits
end a task that hangs; the next turn starts afresh.

A nudge to or from a node carries no times. Celery compares the expiry and the due
time that a sender wrote with the clock of the receiver, and a node whose clock is
an hour ahead would find every nudge expired. What must not pile up for a node that
is away is bounded by the length of its queue instead.
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
from cluster.models import Node, Replica

log = logging.getLogger(__name__)

# How often a fresh process is probed, and how many times.
_SOON_S = 0.5
_SOON_TURNS = 120
_LOOK_AGAIN_S = 0.5
# Further nudges to a queue that holds so many would add nothing.
_WAITING_MOST = 2
_TURN_MS = 900


def _nudge(task: Task[Any, Any], *args: Any, queue: str, in_s: float = 0.0) -> None:
    """Send a task to the same machine, or among those of the control plane; it is
    worth nothing 5 s after its time."""
    with contextlib.suppress(OperationalError):
        task.apply_async(
            args=args, queue=queue, countdown=in_s, expires=in_s + 5, retry=False
        )


def _nudge_across(task: Task[Any, Any], *args: Any, queue: str) -> None:
    """Send a task to a machine whose clock may be any."""
    with contextlib.suppress(OperationalError, redis.RedisError):
        # Celery keeps a queue as a Redis list of its name.
        if live.redis_client().llen(queue) < _WAITING_MOST:
            task.apply_async(args=args, queue=queue, retry=False)


def node_nudge(node: Node) -> None:
    """Ask a node to reconcile; a lost nudge is made up for by the schedule."""
    _nudge_across(node_reconcile, node.name, queue=node.queue)


def node_look(node_name: str) -> None:
    """On the node itself: reconcile now, and once more for the case that a pass is
    at work that has looked at the cause already."""
    for in_s in (0.0, _LOOK_AGAIN_S):
        _nudge(node_reconcile, node_name, queue=f"node.{node_name}", in_s=in_s)


@shared_task(name="cluster.tasks.node_reconcile", time_limit=60)
def node_reconcile(node_name: str) -> None:
    """Start and stop what is wanted on this node."""
    node = Node.objects.get(name=node_name)
    done = services.node_reconcile(node=node)
    if done is None:
        return
    for replica_id in done.started:
        _nudge_across(replica_probe_soon, replica_id, queue="celery")
    if done.unverified:
        _nudge(artifacts_verify, node_name, queue=node.queue)
    if done.look_again_s is not None:
        _nudge(node_reconcile, node_name, queue=node.queue, in_s=done.look_again_s)


def replica_log_nudge(replica: Replica) -> None:
    """Ask the node of a replica for the last lines of its log."""
    if replica.node is not None:
        _nudge_across(replica_log_publish, replica.id, queue=replica.node.queue)


@shared_task(name="cluster.tasks.replica_log_publish", time_limit=10)
def replica_log_publish(replica_id: str) -> None:
    """Put the last lines of a replica's log into Redis for those who asked."""
    replica = Replica.objects.select_related("node").get(pk=replica_id)
    services.replica_log_publish(replica=replica)


@shared_task(name="cluster.tasks.nodes_reconcile", time_limit=30)
def nodes_reconcile() -> None:
    """Nudge every node."""
    for node in Node.objects.all():
        node_nudge(node)


@shared_task(name="cluster.tasks.nodes_watch", time_limit=30)
def nodes_watch() -> None:
    """Write down which nodes are heard of."""
    try:
        services.nodes_watch()
    except redis.RedisError as error:
        log.warning("nodes not watched, redis is away: %s", error)


def drains_nudge(*, in_s: float = 0.0) -> None:
    """Have the drains looked at; a lost nudge is made up for by the schedule."""
    _nudge(drains_advance, queue="celery", in_s=in_s)


@shared_task(name="cluster.tasks.drains_advance", time_limit=30)
def drains_advance() -> None:
    """Take every draining replica one step on, once a second while any waits."""
    # Two chains of nudges would go on side by side: only one gets the turn.
    turn = live.redis_client().set("sluice:drains#turn", "1", nx=True, px=_TURN_MS)
    if turn and services.drains_advance(now=time.time()):
        drains_nudge(in_s=1.0)


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


@shared_task(name="cluster.tasks.engines_ask", time_limit=60)
def engines_ask() -> None:
    """Ask engines what they are, where that is due."""
    try:
        services.engines_ask()
    except redis.RedisError as error:
        log.warning("engines not asked, redis is away: %s", error)


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
def replica_probe_soon(replica_id: str, turns: int = _SOON_TURNS) -> None:
    """Probe a fresh process again and again until it is up or has ended."""
    services.replicas_probe(replica_ids=[replica_id])
    record = live.records_read([replica_id])[replica_id]
    label = state_merge(record, now=time.time()).label
    if label is Label.WARMING:
        _nudge(replicas_deep_probe, queue="celery")
    if label in (Label.LOADING, Label.WARMING) and turns > 1:
        _nudge(replica_probe_soon, replica_id, turns - 1, queue="celery", in_s=_SOON_S)
