from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import redis
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from cluster import live
from cluster.errors import Missing
from cluster.health import Record, State, states_merge
from cluster.models import Replica, ReplicaTransition
from cluster.selectors.names import name_possible


@dataclass(frozen=True)
class ReplicaView:
    """A replica with its live state; ``state`` is None while Redis is away."""

    replica: Replica
    record: Record | None
    state: State | None


def replica_list(
    *, model: str = "", include_removed: bool = False
) -> QuerySet[Replica]:
    """Replicas with their version, model and node, in a stable order."""
    replicas = Replica.objects.select_related("version__model", "node")
    if model and not name_possible(model):
        return replicas.none()
    if model:
        replicas = replicas.filter(version__model__name=model)
    if not include_removed:
        replicas = replicas.filter(removed_at__isnull=True)
    return replicas.order_by("version__model__name", "version_id", "number")


def replica_get(*, replica_id: str) -> Replica:
    """The replica with its version, model and node, or ``Missing``; a removed one
    is missing."""
    found = replica_list().filter(pk=replica_id) if name_possible(replica_id) else None
    replica = found and found.first()
    if not replica:
        raise Missing(
            _("There is no replica %(name)s.") % {"name": replica_id}, field="replica"
        )
    return replica


def replica_any(*, replica_id: str) -> Replica:
    """The replica, removed or not, with its version, model and node; or ``Missing``."""
    known = replica_list(include_removed=True)
    found = known.filter(pk=replica_id) if name_possible(replica_id) else None
    replica = found and found.first()
    if not replica:
        raise Missing(
            _("There is no replica %(name)s.") % {"name": replica_id}, field="replica"
        )
    return replica


def replica_views(replicas: Iterable[Replica]) -> list[ReplicaView]:
    """Each replica with the state that the router sees, in one round trip.

    A state depends on the other replicas of the model, so their records are read
    too; a removed replica stands for itself.
    """
    rows = list(replicas)
    try:
        records, states = states_read({row.version.model_id for row in rows}, rows)
    except redis.RedisError:
        return [ReplicaView(replica, None, None) for replica in rows]
    return [ReplicaView(row, records[row.id], states[row.id]) for row in rows]


def replica_timeline(*, replica: Replica, limit: int = 50) -> list[ReplicaTransition]:
    """What states a replica was in, the newest first."""
    return list(replica.transitions.order_by("-pk")[:limit])


def states_read(
    model_ids: Collection[int], alone: Iterable[Replica] = ()
) -> tuple[dict[str, Record], dict[str, State]]:
    """Records and states of every replica of these models, and of those ``alone``
    that no longer belong to one. Raises ``redis.RedisError``."""
    groups: dict[int, list[str]] = defaultdict(list)
    present = Replica.objects.filter(
        removed_at__isnull=True, version__model__in=model_ids
    )
    for id_, model_id in present.values_list("pk", "version__model_id"):
        groups[model_id].append(id_)
    grouped = {id_ for ids in groups.values() for id_ in ids}
    singles = [[row.id] for row in alone if row.id not in grouped]
    records, loads, now = live.fleet_read([*grouped, *(id_ for (id_,) in singles)])
    states: dict[str, State] = {}
    for ids in (*groups.values(), *singles):
        group = {id_: records[id_] for id_ in ids}
        states |= states_merge(group, now=now, loads=loads)
    return records, states
