"""What the gateway answers itself: health, metrics, the list of models."""

from __future__ import annotations

import time
from typing import Any, Protocol

import msgspec

from routing.balance.router import Route, Router
from routing.balance.state import ReplicaStates
from routing.contracts.keys import KeyEntry
from routing.gateway import errors
from routing.gateway.exchange import Exchange
from routing.gateway.header_lines import JSON
from routing.gateway.proxy import may_call
from routing.gateway.redis_link import RedisLink
from routing.gateway.telemetry import Telemetry
from routing.gateway.watcher import Watcher


class Process(Protocol):
    id: str
    draining: bool
    link: RedisLink
    states: ReplicaStates
    telemetry: Telemetry
    watcher: Watcher


def livez() -> bytes:
    return b'{"status":"ok"}'


def readyz(process: Process) -> tuple[int, bytes]:
    """Ready is whoever can serve: a gateway with a snapshot that is not draining.

    That Redis is away is said, which models are short of replicas (``panic``), and that
    outcomes are late or lost (``warnings``), but none of it takes a serving gateway
    out.
    """
    watcher, link = process.watcher, process.link
    reasons = []
    if watcher.snapshot is None:
        reasons.append("no snapshot was applied yet")
    if process.draining:
        reasons.append("draining")
    epoch, revision = watcher.current
    age_s = time.time() - watcher.applied_at if watcher.snapshot else None
    body: dict[str, Any] = {
        "status": "unavailable" if reasons else "ok",
        "reasons": reasons,
        "gateway": process.id,
        "epoch": epoch,
        "revision": revision,
        "applied_s_ago": None if age_s is None else round(age_s, 1),
        "panic": sorted(g.model for g in process.states.groups() if g.panic),
        "redis": {"up": link.up, "since": round(link.since, 3)},
        "warnings": process.telemetry.warnings(),
    }
    return (503 if reasons else 200), msgspec.json.encode(body)


def models_list(exchange: Exchange, router: Router | None, entry: KeyEntry) -> None:
    """The models that the key may call."""
    exchange.team, exchange.key = entry.team, entry.id
    routes = router.routes.values() if router else ()
    data = [_model(r) for r in routes if may_call(entry, r.entry.model)]
    exchange.answer(JSON, msgspec.json.encode({"object": "list", "data": data}))


def model_show(
    exchange: Exchange, router: Router | None, model: str, entry: KeyEntry
) -> None:
    """One model; one that the key may not call does not exist for it."""
    exchange.team, exchange.key = entry.team, entry.id
    route = router.routes.get(model) if router else None
    if route is None or not may_call(entry, model):
        exchange.refuse(errors.model_not_found(model[:200]))
        return
    exchange.answer(JSON, msgspec.json.encode(_model(route)))


def _model(route: Route) -> dict[str, Any]:
    return {
        "id": route.entry.model,
        "object": "model",
        "created": route.entry.created,
        "owned_by": "sluice",
    }
