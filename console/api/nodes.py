from __future__ import annotations

from datetime import datetime

from ninja import Query, Router
from pydantic import BaseModel

from cluster.models import Node
from cluster.selectors import node_get, node_list
from console.api.auth import ApiRequest
from console.api.paging import Paging, page
from console.api.shapes import Page, answers

router = Router(tags=["Nodes"])


class NodeOut(BaseModel):
    """``host`` is where gateways reach the replicas of the node."""

    name: str
    host: str
    replicas: int
    created_at: datetime


class NodePage(Page[NodeOut]):
    pass


def node_out(node: Node) -> NodeOut:
    return NodeOut(
        name=node.name,
        host=node.host,
        replicas=getattr(node, "replica_count", 0),
        created_at=node.created_at,
    )


@router.get("", response=answers(200, NodePage, 422))
def node_list_page(request: ApiRequest, paging: Query[Paging]) -> NodePage:
    """Every machine that runs replicas, by name."""
    rows, following = page(request, node_list(), order=("name",), paging=paging)
    return NodePage(items=[node_out(row) for row in rows], next=following)


@router.get("/{name}", response=answers(200, NodeOut, 404))
def node_show(request: ApiRequest, name: str) -> NodeOut:
    """One machine that runs replicas."""
    return node_out(node_get(name=name))
