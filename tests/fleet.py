"""A small cluster for tests of pages: rows through the services, live state as the
node, the prober and the gateways would write it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, cast

import msgspec
import redis
from django.utils import timezone

from cluster import live
from cluster.actor import Actor
from cluster.health import Probe, ProbeAxis, Process, ProcessAxis
from cluster.health.inflight import OpenRequest, inflight_fields, inflight_name
from cluster.models import Model, Replica, Version
from cluster.services import (
    model_create,
    node_register,
    replica_address_set,
    replica_create,
    version_create,
)
from routing.contracts import names
from routing.contracts.draws import RouteDraws, draws_decode, draws_encode
from routing.contracts.gateway import GatewayRecord
from routing.models import (
    ApiKey,
    GenerationServed,
    Revision,
    Team,
    TelemetryCursor,
    TrafficMinute,
)
from routing.selectors import route_get
from routing.services import key_issue, team_create, weights_set

ACTOR = Actor("user", "ada", "127.0.0.1")


def model_add(name: str, *version_names: str, **fields: str) -> Model:
    model = model_create(name=name, actor=ACTOR, **fields)
    for version_name in version_names:
        version_create(
            model=model,
            name=version_name,
            engine="llamacpp",
            served_name=name,
            params={"ctx-size": 2048, "parallel": 2},
            actor=ACTOR,
        )
    return model


def replica_add(
    model: Model, version: str, port: int, *, probe: Probe | None = Probe.UP
) -> Replica:
    """A static replica that the prober saw in the given state, or not at all."""
    replica = replica_create(
        version=Version.objects.get(model=model, name=version),
        driver="static",
        address=f"http://10.0.0.5:{port}",
        actor=ACTOR,
    )
    if probe is not None:
        probe_write(replica, probe)
    return replica


def probe_write(replica: Replica, probe: Probe, detail: str = "") -> None:
    live.axis_write(replica.id, ProbeAxis(probe, time.time() - 65, detail=detail))


def process_add(model: Model, version: str, axis: ProcessAxis) -> Replica:
    """A replica that a node runs, with what the node says of its process."""
    replica = replica_create(
        version=Version.objects.get(model=model, name=version),
        driver="process",
        node=node_register(name="local", actor=ACTOR),
        actor=ACTOR,
    )
    live.axis_write(replica.id, axis)
    if axis.state is Process.RUNNING:
        replica_address_set(
            replica=replica, address="http://127.0.0.1:41234", actor=ACTOR
        )
        up = ProbeAxis(Probe.UP, time.time() - 30, process_since=axis.since)
        live.axis_write(replica.id, up)
    return replica


def gateway_set(
    gateway_id: str, *, revision: int | None = None, started_at: float | None = None
) -> None:
    """A live gateway that applies the given revision, or the newest one."""
    newest = Revision.objects.first()
    now = time.time()
    record = GatewayRecord(
        id=gateway_id,
        host="local",
        pid=4242,
        started_at=now - 3600 if started_at is None else started_at,
        epoch=newest.epoch if newest else 1,
        revision=revision if revision is not None else (newest.number if newest else 0),
        applied_at=now - 2,
        in_flight=3,
    )
    client = live.redis_client()
    client.set(names.gateway(gateway_id), msgspec.json.encode(record))
    client.zadd(names.GATEWAYS, {gateway_id: now})


def open_set(client: redis.Redis, replica_id: str, count: int) -> None:
    """A live gateway g1 that has so many requests open at the replica, the last one
    for the longest."""
    gateway_set("g1")
    open_ = [OpenRequest(f"r{n}", "search", 1.0 + n, True, n) for n in range(count)]
    fields: Any = inflight_fields({replica_id: open_})
    client.hset(inflight_name("g1"), mapping=fields)


def draws_set(
    gateway_id: str,
    model: str,
    drawn: dict[str, int],
    *,
    generation: int | None = None,
    epoch: int | None = None,
    created: int | None = None,
) -> None:
    """What a live gateway says that it drew, by the generation in force unless told
    otherwise."""
    route = route_get(model=model)
    newest = Revision.objects.latest("number")
    draws = RouteDraws(
        newest.epoch if epoch is None else epoch,
        int(route.model.created_at.timestamp()) if created is None else created,
        route.generation if generation is None else generation,
        drawn,
    )
    name = names.gateway_draws(gateway_id)
    body = cast("bytes | None", live.redis_client().get(name))
    others = draws_decode(body) if body else {}
    live.redis_client().set(name, draws_encode(others | {model: draws}))


def served_set(
    model: str,
    counts: dict[tuple[str, str], int],
    *,
    gateway: str = "g1",
    generation: int | None = None,
) -> None:
    """What a gateway served, by (drawn, served) version, as the ingest counts it."""
    for (first, version), requests in counts.items():
        GenerationServed.objects.create(
            model=model,
            generation=generation or route_get(model=model).generation,
            gateway=gateway,
            first_version=first,
            version=version,
            requests=requests,
        )


def minutes_set(model: str, *, per_minute: int) -> None:
    """Drawn requests of the last minutes and of the current one, as counted."""
    now = timezone.now()
    TelemetryCursor.objects.get_or_create(pk=1, defaults={"moved_at": now})
    minute = now.replace(second=0, microsecond=0)
    for ago in range(-1, 8):
        TrafficMinute.objects.create(
            minute=minute - timedelta(minutes=ago),
            gateway="g1",
            model=model,
            generation=route_get(model=model).generation,
            first_version="v1",
            share_bp=8000,
            chosen=False,
            version="v1",
            team="t",
            key="k",
            ending="completed",
            requests=per_minute,
        )


def weights_give(model: str, weights: dict[str, int], reason: str = "") -> None:
    route = route_get(model=model)
    weights_set(
        route=route,
        weights=weights,
        generation=route.generation,
        reason=reason,
        actor=ACTOR,
    )


def team_with_key(slug: str = "search") -> tuple[Team, ApiKey]:
    team = team_create(slug=slug, name=slug.title(), actor=ACTOR)
    return team, key_issue(team=team, name="nightly-report", actor=ACTOR)[0]


def fleet_fill() -> Model:
    """Two models in every kind of state, two gateways, a team with keys."""
    qwen = model_add("qwen3-8b", "v1", "v2", "v3", description="General chat")
    for port in (8001, 8002):
        replica_add(qwen, "v1", port)
    ill = replica_add(qwen, "v1", 8003)
    probe_write(ill, Probe.DOWN, "connect to 10.0.0.5:8003 refused")
    replica_add(qwen, "v2", 8101)
    replica_add(qwen, "v3", 8201, probe=None)
    now = time.time()
    process_add(qwen, "v2", ProcessAxis(Process.RUNNING, now - 900, restarts=2))
    process_add(
        qwen,
        "v3",
        ProcessAxis(
            Process.FAILED,
            now - 40,
            detail="artifact /models/qwen3-8b-v3.gguf does not exist",
            next_try=now + 75,
        ),
    )
    model_add("bge-m3", kind="embedding")
    weights_give("qwen3-8b", {"v1": 9500, "v2": 500}, "first canary")
    weights_give("qwen3-8b", {"v1": 8000, "v2": 2000}, "looks good")
    team_with_key()
    gateway_set("local-1")
    gateway_set("local-2")
    draws_set("local-1", "qwen3-8b", {"v1": 402, "v2": 98})
    draws_set("local-2", "qwen3-8b", {"v1": 401, "v2": 99})
    served_set("qwen3-8b", {("v1", "v1"): 790, ("v2", "v2"): 180, ("v2", "v1"): 12})
    return qwen
