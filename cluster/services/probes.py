"""Probing: what each replica says of itself and its load, written down."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec
import redis
import uvloop
from django.db.models import QuerySet

from cluster import feed, live
from cluster.engines import Engine, Metrics, Params, engine_get
from cluster.engines.rates import load_failed, load_next
from cluster.health import (
    Probe,
    ProbeAxis,
    Process,
    Reading,
    Record,
    record_decode,
)
from cluster.health.load import LOADS, Load, load_decode
from cluster.health.probing import DOUBTFUL, Streak, probe_next
from cluster.models import Driver, Replica
from cluster.services.asking import Unscraped, health_ask, metrics_ask
from cluster.services.http_get import Link

log = logging.getLogger(__name__)

_NAMES = feed.feed_names(feed.REPLICAS)
_AT_ONCE = 256
# Longer than any question takes, so that only a dead prober leaves it to expire.
_LOCK_MS = 15_000
# Readings further apart than this are not in a row.
_STREAK_S = 60
# Content this recent outweighs a missing answer, which takes as long to be missed.
SERVES_S = 10.0


class _Target(NamedTuple):
    replica_id: str
    address: str
    has_process: bool
    engine: Engine
    params: Params
    served_name: str

    @property
    def probe_lock(self) -> str:
        return f"sluice:probe:{self.replica_id}#lock"

    @property
    def scrape_lock(self) -> str:
        return f"sluice:scrape:{self.replica_id}#lock"

    @property
    def streak(self) -> str:
        return f"sluice:probe:{self.replica_id}#streak"


class _Known(NamedTuple):
    """What is known of a target before the question. ``metrics`` is None where it
    has none and while another call is just reading them."""

    record: Record
    streak: Streak
    load: Load | None
    metrics: Metrics | None


def replicas_probe(
    *, replica_ids: Collection[str] | None = None
) -> dict[str, ProbeAxis | None]:
    """Probe these replicas, or all, at once; the axes that are now in force.

    Those that are up are asked for their load too, over the same connection.
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
    if replica_ids is None:
        live.loads_keep({target.replica_id for target in targets})
    return uvloop.run(_probe_all(targets)) if targets else {}


async def _probe_all(targets: list[_Target]) -> dict[str, ProbeAxis | None]:
    """Each trouble stays its own, but an absent Redis is everybody's."""
    room = asyncio.Semaphore(_AT_ONCE)
    axes: dict[str, ProbeAxis | None] = {}

    async def probe(target: _Target, known: _Known) -> None:
        async with room:
            link = Link(target.address)
            try:
                await _probe_one(link, target, known, axes)
            finally:
                link.close()

    begun = _begin(targets)
    live.probed_mark([target.replica_id for target, _ in begun], round(time.time(), 3))
    results = await asyncio.gather(
        *(probe(target, known) for target, known in begun), return_exceptions=True
    )
    for (target, _), error in zip(begun, results, strict=True):
        if isinstance(error, redis.RedisError):
            raise error
        if error is not None:
            log.error("replica %s not probed", target.replica_id, exc_info=error)
    return axes


def _begin(targets: Sequence[_Target]) -> list[tuple[_Target, _Known]]:
    """The targets that may be asked now, and what is known of them; in one round
    trip, since they are many."""
    pipeline = live.redis_client().pipeline(transaction=False)
    for target in targets:
        pipeline.set(target.probe_lock, "1", nx=True, px=_LOCK_MS)
        pipeline.set(target.scrape_lock, "1", nx=True, px=2 * _LOCK_MS)
        pipeline.hgetall(_NAMES.entry(target.replica_id))
        pipeline.get(target.streak)
        pipeline.hget(LOADS, target.replica_id)
    answers = iter(pipeline.execute())
    begun, unlock, forget = [], [], []
    for target in targets:
        probes, scrapes, fields, streak, load = (next(answers) for _ in range(5))
        record = record_decode(fields)
        may = probes and (not target.has_process or _runs(record))
        if not may:
            unlock += [target.probe_lock] * bool(probes)
            unlock += [target.scrape_lock] * bool(scrapes)
            forget += [target.replica_id] * bool(probes and load)
            continue
        known = _Known(
            record,
            msgspec.json.decode(streak, type=Streak) if streak else Streak(),
            load_decode(load),
            target.engine.metrics(target.params) if scrapes else None,
        )
        if scrapes and known.metrics is None:
            unlock.append(target.scrape_lock)
        begun.append((target, known))
    if unlock or forget:
        live.loads_drop(forget, unlock=unlock)
    return begun


async def _probe_one(
    link: Link, target: _Target, known: _Known, axes: dict[str, ProbeAxis | None]
) -> None:
    client = live.redis_client()
    try:
        reading = await health_ask(
            link,
            engine=target.engine,
            params=target.params,
            served_name=target.served_name,
        )
        axes[target.replica_id] = _believe(target, known, reading)
    except BaseException:
        client.delete(target.probe_lock, target.scrape_lock)
        raise
    # The scrape may be slow; the next probe does not wait for it.
    client.delete(target.probe_lock)
    if known.metrics is not None:
        try:
            load = await _load(link, known.metrics, reading, known.load)
            live.load_write(target.replica_id, load, unlock=target.scrape_lock)
        except BaseException:
            client.delete(target.scrape_lock)
            raise


def _believe(target: _Target, known: _Known, reading: Reading) -> ProbeAxis | None:
    """The axis after this reading, written if it changed."""
    record, streak = known.record, known.streak
    # Asked for only now: it may have served while it owed us an answer.
    serves = reading.reason in DOUBTFUL and live.served_s(target.replica_id) < SERVES_S
    axis, streak_after = probe_next(
        record.probe,
        streak,
        reading,
        process_since=record.process_since,
        now=round(time.time(), 3),
        serves=serves,
    )
    if axis is not None and axis != record.probe:
        live.axis_write(target.replica_id, axis)
    # Counted again each time, so that it expires only when the row is broken.
    if streak_after != streak or streak.failures or streak.successes:
        live.redis_client().set(
            target.streak, msgspec.json.encode(streak_after), ex=_STREAK_S
        )
    return axis


async def _load(
    link: Link, metrics: Metrics, reading: Reading, before: Load | None
) -> Load:
    """The load as of now; a replica that is not up is not asked for it."""
    if reading.state is not Probe.UP:
        return load_failed(before, "not_up", reading.detail, round(time.time(), 3))
    try:
        scrape = await metrics_ask(link, metrics)
    except Unscraped as error:
        return load_failed(before, error.reason, error.detail, round(time.time(), 3))
    return load_next(before, scrape, round(time.time(), 3))


def _runs(record: Record) -> bool:
    return record.process is not None and record.process.state is Process.RUNNING
