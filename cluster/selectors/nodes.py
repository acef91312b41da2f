from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import redis
from django.db.models import Count, Q, QuerySet
from django.utils.translation import gettext as _

from cluster import presence
from cluster.errors import Missing
from cluster.health.node import NodeFacts, NodeState, node_state
from cluster.models import Node
from cluster.selectors.names import name_possible


@dataclass(frozen=True)
class NodeView:
    """A node with its last heartbeat; ``state`` is None while Redis is away.

    ``age_s`` is the age of the heartbeat, ``at`` its Unix time by Redis' clock; both
    are None, as ``facts`` are, for a node that was never heard of. ``rival`` is another
    machine that was lately refused the node's name.
    """

    node: Node
    state: NodeState | None
    at: float | None = None
    age_s: float | None = None
    facts: NodeFacts | None = None
    rival: NodeFacts | None = None


def node_list() -> QuerySet[Node]:
    """Every node by name, with ``replica_count``, removed ones not counted."""
    present = Q(replicas__removed_at__isnull=True)
    counted = Node.objects.annotate(replica_count=Count("replicas", filter=present))
    # A query that groups does not keep the model's own order.
    return counted.order_by("name")


def node_get(*, name: str) -> Node:
    """The node of this name as ``node_list`` has it, or ``Missing``."""
    node = node_list().filter(name=name).first() if name_possible(name) else None
    if node is None:
        raise Missing(_("There is no node %(name)s.") % {"name": name}, field="node")
    return node


def node_views(nodes: Iterable[Node]) -> list[NodeView]:
    """Each node with what is heard of it, in one round trip."""
    rows = list(nodes)
    try:
        now, presences = presence.presences_read(row.name for row in rows)
    except redis.RedisError:
        return [NodeView(row, None) for row in rows]
    return [_view(row, presences[row.name], now) for row in rows]


def _view(node: Node, heard: presence.Presence | None, now: float) -> NodeView:
    if heard is None:
        return NodeView(node, NodeState.NEVER_SEEN)
    age_s = max(0.0, now - heard.at)
    state = node_state(heard.at, now)
    return NodeView(node, state, heard.at, age_s, heard.facts, heard.rival)
