"""Probing: what each replica says of itself, believed and written down."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from typing import NamedTuple

import httpx
import msgspec
import redis
from django.db.models import QuerySet

from cluster import feed, live
from cluster.engines import Engine, Params, engine_get
from cluster.health import ProbeAxis, Process, Record, record_decode
from cluster.health.probing import Streak, probe_next
from cluster.models import Driver, Replica
from cluster.services.asking import asking_client, health_ask

log = logging.getLogger(__name__)

_NAMES = feed.feed_names(feed.REPLICAS)
_AT_ONCE = 256
# Longer than any question takes, so that only a dead prober leaves it to expire.
_LOCK_MS = 15_000
# Readings further apart than this are not in a row.
_STREAK_S = 60


class _Target(NamedTuple):
    replica_id: str
    address: str
    has_process: bool
    engine: Engine
    params: Params
    served_name: str


def replicas_probe(
    *, replica_ids: Collection[str] | None = None
) -> dict[str, ProbeAxis | None]:
    """Probe these replicas, or all, at once; the axes that are now in force.

    Replicas without a running process, and those that another call is just asking,
    are left out. Raises ``redis.RedisError`` while Redis is away: without the
    record there is nothing to compare with and nowhere to write.
    """
    replicas: QuerySet[Replica] = Replica.objects.filter(removed_at__isnull=True)
    if replica_ids is not None:
        replicas = replicas.filter(pk__in=replica_ids)
    targets = [
        _Target(
            row.id,
            row.address,
            row.driver != Driver.STATIC,
            engine_get(row.version.engine),
            row.version.params,
            row.version.served_name,
        )
        for row in replicas.exclude(address="").select_related("version")
    ]
    return asyncio.run(_probe_all(targets)) if targets else {}


async def _probe_all(targets: list[_Target]) -> dict[str, ProbeAxis | None]:
    """Each trouble stays its own, but an absent Redis is everybody's."""
    room = asyncio.Semaphore(_AT_ONCE)
    axes: dict[str, ProbeAxis | None] = {}
    async with asking_client() as client:

        async def probe(target: _Target) -> None:
            async with room:
                await _probe_one(client, target, axes)

        results = await asyncio.gather(*map(probe, targets), return_exceptions=True)
    for target, error in zip(targets, results, strict=True):
        if isinstance(error, redis.RedisError):
            raise error
        if error is not None:
            log.error("replica %s not probed", target.replica_id, exc_info=error)
    return axes


async def _probe_one(
    client: httpx.AsyncClient, target: _Target, axes: dict[str, ProbeAxis | None]
) -> None:
    if (known := _begin(target)) is not None:
        try:
            axes[target.replica_id] = await _probe(client, target, *known)
        finally:
            live.redis_client().delete(_lock_name(target))


def _begin(target: _Target) -> tuple[Record, Streak] | None:
    """What is known before the question; None when it must not be asked now."""
    client = live.redis_client()
    if not client.set(_lock_name(target), "1", nx=True, px=_LOCK_MS):
        return None
    pipeline = client.pipeline(transaction=False)
    pipeline.hgetall(_NAMES.entry(target.replica_id))
    pipeline.get(_streak_name(target))
    fields, raw = pipeline.execute()
    record = record_decode(fields)
    if target.has_process and not _runs(record):
        client.delete(_lock_name(target))
        return None
    return record, msgspec.json.decode(raw, type=Streak) if raw else Streak()


async def _probe(
    client: httpx.AsyncClient, target: _Target, record: Record, streak: Streak
) -> ProbeAxis | None:
    reading = await health_ask(
        client,
        target.address,
        engine=target.engine,
        params=target.params,
        served_name=target.served_name,
    )
    process_since = record.process.since if record.process else 0.0
    axis, streak_after = probe_next(
        record.probe,
        streak,
        reading,
        process_since=process_since,
        now=round(time.time(), 3),
    )
    if axis is not None and axis != record.probe:
        live.axis_write(target.replica_id, axis)
    # Counted again each time, so that it expires only when the row is broken.
    if streak_after != streak or streak.failures or streak.successes:
        live.redis_client().set(
            _streak_name(target), msgspec.json.encode(streak_after), ex=_STREAK_S
        )
    return axis


def _runs(record: Record) -> bool:
    return record.process is not None and record.process.state is Process.RUNNING


def _lock_name(target: _Target) -> str:
    return f"sluice:probe:{target.replica_id}#lock"


def _streak_name(target: _Target) -> str:
    return f"sluice:probe:{target.replica_id}#streak"
