"""The books of gateway processes: closed when a process is gone for good.

Every few seconds the record of each living gateway is laid aside. Of one that is
gone, the last such record says how many outcomes it had numbered and how many requests
it had open: what never came is then known, as far as that record goes back, which is
a few seconds.

A process may come back that was only cut off. Its books are opened again by its next
outcome, and what had been counted as lost is taken back: it may still come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
import redis
from django.db import transaction
from django.utils import timezone

from cluster.live import redis_client
from routing.contracts import names
from routing.contracts.counts import SEQ_FIELD
from routing.contracts.gateway import GatewayRecord, gateway_decode
from routing.models import TelemetrySource

# How long nothing is heard of a gateway before its books are closed: longer than its
# lease, so that a short cut of its network opens and closes nothing.
CLOSE_AFTER_S = 30.0
# How much longer its traces in Redis are kept, for the case that it comes back.
FORGET_AFTER_S = 3_600.0
# When nobody looked for so long, nobody knows since when a gateway is absent.
_LOOKS_APART_MOST_S = 20.0
_LOOKED = "#looked"
_MISSING_MOST = 10**9


class Last(msgspec.Struct, frozen=True):
    """A gateway as it was seen last. Times are Redis's, in Unix seconds.

    ``absent_at`` is when it was missed first, 0 while it lives; ``ended`` that it took
    its record away itself, as a process does that is told to stop.
    """

    seen_at: float
    emitted: int = 0
    in_flight: int = 0
    absent_at: float = 0.0
    ended: bool = False


class _Look(NamedTuple):
    """Everything that one pass reads from Redis."""

    now: float
    since_last_look_s: float
    members: set[str]
    living: dict[str, GatewayRecord]
    last: dict[str, Last]
    oldest_entry_at: float


def sources_close(*, close_after_s: float = CLOSE_AFTER_S) -> list[str]:
    """Lay the living gateways' records aside and close the books of those that are
    gone; the ids of these. Raises ``redis.RedisError``."""
    look = _look()
    open_ = set(
        TelemetrySource.objects.filter(closed_at__isnull=True).values_list(
            "pk", flat=True
        )
    )
    kept: dict[str, Last] = {}
    closed: list[str] = []
    forgotten: list[str] = []
    for gateway in look.members | set(look.last) | open_:
        last = kept[gateway] = _follow(gateway, look)
        if not last.absent_at:
            continue
        absent_s = look.now - last.absent_at
        # Its last rows may still wait in the stream.
        if absent_s >= close_after_s and look.oldest_entry_at > last.absent_at:
            closed += [gateway] if _close(gateway, last) else []
            if absent_s >= close_after_s + FORGET_AFTER_S:
                forgotten.append(gateway)
    _keep(kept, look.now)
    _forget(forgotten)
    return closed


def _look() -> _Look:
    client = redis_client()
    pipeline = client.pipeline(transaction=False)
    pipeline.time()
    pipeline.zrange(names.GATEWAYS, 0, -1)
    pipeline.hgetall(names.GATEWAYS_LAST)
    pipeline.xrange(names.OUTCOMES, count=1)
    (seconds, micros), ids, fields, entries = pipeline.execute()
    now = seconds + micros / 1e6
    members = {id_.decode("ascii", "replace") for id_ in ids if len(id_) <= 64}
    last = _last_decode(fields)
    looked_at = float(fields.get(_LOOKED.encode(), 0))
    oldest = int(entries[0][0].partition(b"-")[0]) / 1000 if entries else float("inf")
    return _Look(
        now=now,
        since_last_look_s=now - looked_at,
        members=members,
        living=_living(client, sorted(members)),
        last=last,
        oldest_entry_at=oldest,
    )


def _living(client: redis.Redis, gateways: list[str]) -> dict[str, GatewayRecord]:
    if not gateways:
        return {}
    bodies = client.mget([names.gateway(gateway) for gateway in gateways])
    found: dict[str, GatewayRecord] = {}
    for gateway, body in zip(gateways, cast("list[bytes | None]", bodies), strict=True):
        try:
            if body is not None:
                found[gateway] = gateway_decode(body)
        except msgspec.DecodeError:
            continue
    return found


def _last_decode(fields: Mapping[bytes, bytes]) -> dict[str, Last]:
    found: dict[str, Last] = {}
    for name, raw in fields.items():
        try:
            if name != _LOOKED.encode():
                found[name.decode()] = msgspec.json.decode(raw, type=Last)
        except ValueError:
            continue
    return found


def _follow(gateway: str, look: _Look) -> Last:
    """What is to be kept of a gateway after this look at it."""
    record = look.living.get(gateway)
    if record is not None:
        return Last(look.now, record.emitted, record.in_flight)
    last = look.last.get(gateway, Last(look.now))
    # Nobody looked for a while, or the clock jumped: it may have gone just now.
    unsure = not 0 <= look.since_last_look_s <= _LOOKS_APART_MOST_S
    if not last.absent_at or unsure or last.absent_at > look.now:
        ended = gateway not in look.members
        return msgspec.structs.replace(last, absent_at=look.now, ended=ended)
    return last


@transaction.atomic
def _close(gateway: str, last: Last) -> bool:
    """Count what never came; false if that is done already, or if there is nothing to
    count."""
    if last.emitted or last.in_flight:
        TelemetrySource.objects.get_or_create(pk=gateway)
    source = (
        TelemetrySource.objects.select_for_update()
        .filter(pk=gateway, closed_at__isnull=True)
        .first()
    )
    if source is None:
        return False
    missing = missing_count(last, source)
    now = timezone.now()
    if missing:
        source.lost += missing
        source.lost_at = now
    if not last.ended:
        # Each outcome beyond those that the record knew may have ended one of them.
        ended_since = max(source.last_outcome - last.emitted, 0)
        source.unfinished = max(last.in_flight - ended_since, 0)
    source.closed_at = now
    source.save(update_fields=["lost", "lost_at", "unfinished", "closed_at"])
    return True


def missing_count(last: Last, source: TelemetrySource) -> int:
    """How many outcomes that a gateway had numbered are not in the database."""
    return min(max(last.emitted - source.last_outcome, 0), _MISSING_MOST)


def source_reopen(source: TelemetrySource) -> None:
    """The process lives after all: take back, unsaved, what closing had counted.

    Where Redis lost the record since, it stays counted: too many are then said to be
    lost, never too few. Raises ``redis.RedisError``.
    """
    raw = redis_client().hget(names.GATEWAYS_LAST, source.gateway)
    last = _last_decode({b"": cast("bytes | None", raw) or b""}).get("")
    if last is not None:
        source.lost -= min(missing_count(last, source), source.lost)
    source.lost_at = source.lost_at if source.lost else None
    source.unfinished = 0
    source.closed_at = None


def _keep(kept: Mapping[str, Last], now: float) -> None:
    fields: dict[Any, Any] = {_LOOKED: repr(now)}
    for gateway, last in kept.items():
        fields[gateway] = msgspec.json.encode(last)
    redis_client().hset(names.GATEWAYS_LAST, mapping=fields)


def _forget(gateways: list[str]) -> None:
    """Remove what Redis holds of closed gateways, but no counts that wait."""
    client = redis_client()
    for gateway in gateways:
        waiting = cast("list[bytes]", client.hkeys(names.counts(gateway)))
        if set(waiting) - {SEQ_FIELD.encode()}:
            continue
        pipeline = client.pipeline(transaction=False)
        pipeline.delete(names.counts(gateway))
        pipeline.srem(names.COUNTS_GATEWAYS, gateway)
        pipeline.hdel(names.COUNTS_ACKS, gateway)
        pipeline.hdel(names.OUTCOMES_ACKS, gateway)
        pipeline.hdel(names.GATEWAYS_LAST, gateway)
        pipeline.zrem(names.GATEWAYS, gateway)
        pipeline.execute()
