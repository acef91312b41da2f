"""Doors for Celery: call the service, and leave the retry to the schedule."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

import redis
from celery import shared_task
from django.db import DatabaseError
from django.utils import timezone

from cluster.actor import SYSTEM
from cluster.live import redis_client
from routing import services
from routing.contracts import names
from routing.services.reconcile import routing_reconcile

log = logging.getLogger(__name__)

_TROUBLE_TOLD_S = 60


@shared_task(name="routing.tasks.snapshot_reconcile")
def snapshot_reconcile() -> None:
    """Make good whatever a lost notice, a crash or an emptied Redis left behind."""
    routing_reconcile(actor=SYSTEM)


@shared_task(name="routing.tasks.outcomes_ingest", time_limit=60)
def outcomes_ingest() -> None:
    """Take the rows that the gateways sent."""
    _in_turn("outcomes", services.outcomes_ingest)


@shared_task(name="routing.tasks.counts_ingest", time_limit=60)
def counts_ingest() -> None:
    """Take what the gateways counted."""
    _in_turn("counts", lambda: services.counts_ingest(now=time.time()))


@shared_task(name="routing.tasks.sources_close", time_limit=60)
def sources_close() -> None:
    """Close the books of gateways that are gone."""
    _in_turn("sources", services.sources_close)


@shared_task(name="routing.tasks.telemetry_prune", time_limit=280)
def telemetry_prune() -> None:
    """Delete the outcomes and counts that are too old."""
    services.telemetry_prune(now=timezone.now(), pause=time.sleep)


def _in_turn(name: str, work: Callable[[], object]) -> None:
    """Run it, unless another worker does. Trouble is told once, then by pages and
    ``/readyz``; the next turn tries again."""
    try:
        with services.turn(f"sluice:{name}#turn") as mine:
            if mine:
                work()
    except redis.RedisError as error:
        log.warning("%s not taken, redis is away: %s", name, error)
    except DatabaseError as error:
        with contextlib.suppress(redis.RedisError):
            told = redis_client().set(
                names.INGEST_TROUBLE, str(error)[:200], ex=_TROUBLE_TOLD_S, get=True
            )
            if told:
                return
        log.warning("%s not taken, the database refuses: %s", name, error)
