from __future__ import annotations

from datetime import datetime

from ninja import Query, Router
from pydantic import BaseModel, Field

from cluster.health.node import Disk, Gpu, NodeFacts, NodeState
from cluster.selectors import NodeView, node_get, node_list, node_views
from console.api.auth import ApiRequest
from console.api.paging import Paging, page
from console.api.shapes import Page, answers, choices, moment

router = Router(tags=["Nodes"])


class GpuOut(BaseModel):
    """Null is what the card does not tell; sizes are MiB."""

    index: int
    name: str
    uuid: str
    memory_total_mb: float | None
    memory_used_mb: float | None
    utilization_percent: float | None
    temperature_c: float | None
    power_w: float | None


class NodeFactsOut(BaseModel):
    """What the node said last; sizes are MiB, ``disk`` is that of its data directory.

    ``clock_offset_s`` is by how much its clock is ahead of that of Redis.
    ``gpus_absent`` is a code that says why no GPU is shown, empty where any is.
    """

    hostname: str
    boot_id: str
    versions: dict[str, str]
    clock_offset_s: float
    clock_is_off: bool
    cpu_count: int
    load_1m: float
    memory_total_mb: float
    memory_available_mb: float
    disk_total_mb: float
    disk_free_mb: float
    disk: str = Field(json_schema_extra=choices(Disk))
    gpus: list[GpuOut]
    gpus_absent: str


class NodeOut(BaseModel):
    """``host`` is where gateways reach the replicas of the node.

    ``state`` is null while Redis does not answer. Of an unreachable node the facts
    are the last known; its replicas may serve all the same. ``rival`` is the address
    of another machine that was refused this name within the last ten minutes.
    """

    name: str
    host: str
    replicas: int
    created_at: datetime
    state: str | None = Field(json_schema_extra=choices(NodeState))
    last_heartbeat: datetime | None
    last_heartbeat_age_s: float | None
    rival: str | None
    facts: NodeFactsOut | None


class NodePage(Page[NodeOut]):
    pass


def node_out(view: NodeView) -> NodeOut:
    node = view.node
    return NodeOut(
        name=node.name,
        host=node.host,
        replicas=getattr(node, "replica_count", 0),
        created_at=node.created_at,
        state=view.state,
        last_heartbeat=moment(view.at or 0.0),
        last_heartbeat_age_s=view.age_s,
        rival=view.rival.host if view.rival else None,
        facts=_facts_out(view.facts) if view.facts else None,
    )


def _facts_out(facts: NodeFacts) -> NodeFactsOut:
    return NodeFactsOut(
        hostname=facts.hostname,
        boot_id=facts.boot_id,
        versions=facts.versions,
        clock_offset_s=facts.clock_offset_s,
        clock_is_off=facts.clock_is_off,
        cpu_count=facts.cpu_count,
        load_1m=facts.load_1m,
        memory_total_mb=facts.memory_total_mb,
        memory_available_mb=facts.memory_available_mb,
        disk_total_mb=facts.disk_total_mb,
        disk_free_mb=facts.disk_free_mb,
        disk=facts.disk,
        gpus=[_gpu_out(gpu) for gpu in facts.gpus],
        gpus_absent=facts.gpus_absent,
    )


def _gpu_out(gpu: Gpu) -> GpuOut:
    return GpuOut.model_validate(gpu, from_attributes=True)


@router.get("", response=answers(200, NodePage, 422))
def node_list_page(request: ApiRequest, paging: Query[Paging]) -> NodePage:
    """Every machine that runs replicas, by name, with what it said last."""
    rows, following = page(request, node_list(), order=("name",), paging=paging)
    return NodePage(items=[node_out(view) for view in node_views(rows)], next=following)


@router.get("/{name}", response=answers(200, NodeOut, 404))
def node_show(request: ApiRequest, name: str) -> NodeOut:
    """One machine that runs replicas, with what it said last."""
    return node_out(node_views([node_get(name=name)])[0])
