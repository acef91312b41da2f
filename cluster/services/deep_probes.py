"""Deep probes: a real request of one token, where nothing else proves that it serves.

A health page answers while the engine behind it hangs. So a fresh process serves one
request of ours before it gets any other, and a replica that has served nobody for a
minute is asked for a token. The requests go to the replica itself, never through a
gateway, carry ``x-sluice-synthetic`` and count nowhere.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import NamedTuple

import msgspec

from cluster import live
from cluster.engines.answers import BODY_LIMIT, snippet
from cluster.health import Passive, PassiveAxis, Probe, Reading, Record
from cluster.health.passive import passive_of, passive_readmitted
from cluster.health.patience import deep_timeout_s
from cluster.health.probing import (
    QUARANTINE_SUCCESSES,
    Deep,
    deep_due,
    deep_next,
    is_warming,
)
from cluster.models import Kind, Replica
from cluster.services.http_get import Link, NoAnswer

log = logging.getLogger(__name__)

WARMUP_TIMEOUT_S = 120.0
# For how long one call takes new replicas on; what is under way may end.
TAKES_ON_S = 60.0
_LOOK_S = 0.5
_LOCK = "sluice:probe#deep"
_LOCK_MS = 10_000

_PATHS = {
    Kind.CHAT: "/v1/chat/completions",
    Kind.COMPLETION: "/v1/completions",
    Kind.EMBEDDING: "/v1/embeddings",
    Kind.RERANK: "/v1/rerank",
}
_RENEW = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', \
KEYS[1], ARGV[2]) or 0"
_UNLOCK = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', \
KEYS[1]) or 0"


class _Target(NamedTuple):
    replica_id: str
    address: str
    kind: str
    served_name: str


def replicas_deep_probe(*, takes_on_s: float = TAKES_ON_S) -> list[str]:
    """Ask every replica for which that is due, all at once, until none is left or
    nobody new is taken on; the ids of those that were asked.

    One call at a time does it for the whole cluster, so no replica ever has two
    such requests; another call returns at once. Raises ``redis.RedisError``.
    """
    client, token = live.redis_client(), secrets.token_hex(8)
    if not client.set(_LOCK, token, nx=True, px=_LOCK_MS):
        return []
    asked: list[str] = []
    running: dict[str, asyncio.Task[None]] = {}
    take_until = time.monotonic() + takes_on_s
    try:
        with asyncio.Runner() as runner:
            while client.eval(_RENEW, 1, _LOCK, token, str(_LOCK_MS)):
                if time.monotonic() < take_until:
                    for target in _due(running):
                        loop = runner.get_loop()
                        running[target.replica_id] = loop.create_task(_deepen(target))
                        asked.append(target.replica_id)
                if not running:
                    break
                runner.run(_wait(running))
    finally:
        client.eval(_UNLOCK, 1, _LOCK, token)
    return asked


def _due(running: dict[str, asyncio.Task[None]]) -> list[_Target]:
    rows = Replica.objects.filter(removed_at__isnull=True).exclude(address="")
    targets = {
        row.id: _Target(
            row.id, row.address, row.version.model.kind, row.version.served_name
        )
        for row in rows.select_related("version__model")
        if row.id not in running
    }
    known, now = live.deeps_read(targets)
    return [
        targets[id_]
        for id_, (record, deep, served_at) in known.items()
        if deep_due(record, deep, served_at=served_at, now=now)
    ]


async def _wait(running: dict[str, asyncio.Task[None]]) -> None:
    """For a moment, or until one is done; each trouble stays its own, but an absent
    Redis is everybody's and is met by the next look."""
    done, _ = await asyncio.wait(
        running.values(), timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED
    )
    for replica_id, task in list(running.items()):
        if task in done:
            del running[replica_id]
            if error := task.exception():
                log.error("replica %s not probed deeply", replica_id, exc_info=error)


async def _deepen(target: _Target) -> None:
    known, _ = live.deeps_read([target.replica_id])
    record = known[target.replica_id].record
    if record.probe is None:
        return
    warming = is_warming(record.probe)
    if warming:
        timeout_s = WARMUP_TIMEOUT_S
    else:
        timeout_s = deep_timeout_s(live.load_read(target.replica_id))
    reading = await token_ask(target, timeout_s=timeout_s)
    _believe(target.replica_id, record, reading)


def _believe(replica_id: str, asked: Record, reading: Reading) -> None:
    """Write what follows, unless it now is another process than the one asked."""
    known, now = live.deeps_read([replica_id])
    record, deep, _ = known[replica_id]
    probe = record.probe
    if probe is None or record.process_since != asked.process_since:
        return
    axis, after = deep_next(probe, deep, reading, now=round(now, 3))
    live.deep_write(replica_id, after)
    if axis != probe:
        live.axis_write(replica_id, axis)
    quarantined = (passive_of(record) or _IN).state is Passive.QUARANTINED
    if quarantined and after.successes >= QUARANTINE_SUCCESSES:
        live.passive_change(replica_id, passive_readmitted)
        live.deep_write(replica_id, Deep(after.process_since, tried_at=now))


_IN = PassiveAxis(Passive.IN, 0.0)


async def token_ask(target: _Target, *, timeout_s: float) -> Reading:
    """Whether one real request is served; never raises, never hangs."""
    link = Link(target.address)
    body = msgspec.json.encode(_question(target))
    try:
        async with asyncio.timeout(timeout_s):
            answer = await link.post(
                _PATHS[Kind(target.kind)], body, most_bytes=BODY_LIMIT
            )
    except NoAnswer as error:
        return Reading(Probe.DOWN, error.reason, error.detail)
    except TimeoutError:
        detail = f"A request for one token was not answered within {timeout_s:g} s."
        return Reading(Probe.DOWN, "timeout", detail)
    finally:
        link.close()
    return token_read(answer.status, answer.body)


def _question(target: _Target) -> dict[str, object]:
    model = {"model": target.served_name}
    if target.kind == Kind.CHAT:
        messages = [{"role": "user", "content": "Hi"}]
        return {**model, "messages": messages, "max_tokens": 1}
    if target.kind == Kind.COMPLETION:
        return {**model, "prompt": "Hi", "max_tokens": 1}
    if target.kind == Kind.EMBEDDING:
        return {**model, "input": "Hi"}
    return {**model, "query": "Hi", "documents": ["Hi"]}


class _Answer(msgspec.Struct):
    choices: list[msgspec.Raw] | None = None
    data: list[msgspec.Raw] | None = None
    results: list[msgspec.Raw] | None = None


def token_read(status: int, body: bytes) -> Reading:
    """What the answer to a request of one token means. A replica that is too busy
    for ours serves others."""
    if status == 429:
        return Reading(Probe.UP)
    if status != 200:
        detail = f"A request for one token was answered {status}: {snippet(body)}"
        return Reading(Probe.DOWN, "http_status", detail)
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = _Answer()
    if answer.choices or answer.data or answer.results:
        return Reading(Probe.UP)
    detail = f"A request for one token was answered without any: {snippet(body)}"
    return Reading(Probe.DOWN, "wrong_answer", detail)
