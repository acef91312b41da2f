"""Asking engines which release they are and which models they list.

Whatever answers, at worst a fact stays unknown: nothing here touches a state.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import NamedTuple

import msgspec
import uvloop

from cluster import live
from cluster.announce import live_announce
from cluster.engines import Engine, engine_get
from cluster.engines.answers import snippet
from cluster.engines.telling import TELLING_LIMIT, names_read, version_read
from cluster.health import Record
from cluster.health.engine_facts import EngineFacts, answers, facts_due
from cluster.models import Replica
from cluster.services.http_get import Answer, Link, NoAnswer

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 3.0
NAMES_KEPT = 20
_NAMES_PATH = "/v1/models"
_AT_ONCE = 256
_LOCK = "sluice:engine-facts#lock"
# Longer than a call with hundreds of replicas that all hang takes.
_LOCK_MS = 60_000
_UNLOCK = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', \
KEYS[1]) or 0"


class _Target(NamedTuple):
    replica_id: str
    address: str
    engine: Engine
    names: set[str]
    version_id: int
    process_since: float


def engines_ask() -> list[str]:
    """Ask every engine for which that is due; the ids of their replicas.

    One call at a time does it for the whole cluster; another one returns at once.
    Raises ``redis.RedisError``.
    """
    client, token = live.redis_client(), secrets.token_hex(8)
    if not client.set(_LOCK, token, nx=True, px=_LOCK_MS):
        return []
    try:
        return _ask_due()
    finally:
        client.eval(_UNLOCK, 1, _LOCK, token)


def _ask_due() -> list[str]:
    rows = {
        row.id: row
        for row in Replica.objects.filter(removed_at__isnull=True)
        .exclude(address="")
        .select_related("version")
    }
    records, known = live.records_read(rows), live.engine_facts_read()
    now = time.time()
    targets = [
        _target(row, records[id_])
        for id_, row in rows.items()
        if facts_due(records[id_], known.get(id_), now=now)
    ]
    news = uvloop.run(_ask_all(targets)) if targets else {}
    for id_, facts in known.items():
        if id_ in rows and facts.is_current and not answers(records[id_]):
            news[id_] = msgspec.structs.replace(facts, is_current=False)
    live.engine_facts_write(news, gone=known.keys() - rows.keys())
    for id_, facts in news.items():
        if _differs(known.get(id_), facts):
            live_announce({"type": "replica.changed", "id": id_})
    return [target.replica_id for target in targets]


def _target(row: Replica, record: Record) -> _Target:
    version, engine = row.version, engine_get(row.version.engine)
    names = engine.names(version.served_name, version.artifact, version.params)
    return _Target(row.id, row.address, engine, names, version.id, record.process_since)


def _differs(before: EngineFacts | None, after: EngineFacts) -> bool:
    return before is None or msgspec.structs.replace(before, at=after.at) != after


async def _ask_all(targets: list[_Target]) -> dict[str, EngineFacts]:
    """Each trouble stays its own."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def ask(target: _Target) -> EngineFacts:
        async with room:
            return await _ask(target)

    results = await asyncio.gather(*map(ask, targets), return_exceptions=True)
    found = {}
    for target, result in zip(targets, results, strict=True):
        if isinstance(result, EngineFacts):
            found[target.replica_id] = result
        else:
            log.error("engine of %s not asked", target.replica_id, exc_info=result)
    return found


async def _ask(target: _Target) -> EngineFacts:
    link, release, names = Link(target.address), "", None
    try:
        release = await _release(link, target.engine)
        names = names_read(*await _get(link, _NAMES_PATH))
    except TimeoutError:
        # Whoever keeps us waiting once is not asked for more.
        pass
    finally:
        link.close()
    return EngineFacts(
        at=round(time.time(), 3),
        version_id=target.version_id,
        process_since=target.process_since,
        release=release,
        models=None if names is None else tuple(map(_shown, names[:NAMES_KEPT])),
        model_count=len(names or ()),
        serves_name=None if names is None else not target.names.isdisjoint(names),
    )


async def _release(link: Link, engine: Engine) -> str:
    for path in engine.version_paths:
        answer = await _get(link, path)
        if release := version_read(*answer, engine.version_field):
            return release
    return ""


async def _get(link: Link, path: str) -> Answer:
    """The answer, an empty one where there is none; ``TimeoutError``."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await link.get(path, most_bytes=TELLING_LIMIT)
    except NoAnswer:
        return Answer(0, b"")


def _shown(name: str) -> str:
    return snippet(name.encode("utf-8", "replace"))
