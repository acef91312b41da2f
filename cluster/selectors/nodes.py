from __future__ import annotations

from django.db.models import Count, Q, QuerySet
from django.utils.translation import gettext as _

from cluster.errors import Missing
from cluster.models import Node
from cluster.selectors.names import name_possible


def node_list() -> QuerySet[Node]:
    """Every node, annotated with ``replica_count``, removed ones not counted."""
    present = Q(replicas__removed_at__isnull=True)
    return Node.objects.annotate(replica_count=Count("replicas", filter=present))


def node_get(*, name: str) -> Node:
    """The node of this name as ``node_list`` has it, or ``Missing``."""
    node = node_list().filter(name=name).first() if name_possible(name) else None
    if node is None:
        raise Missing(_("There is no node %(name)s.") % {"name": name}, field="node")
    return node
