"""What the replicas of a version were at some time."""

from __future__ import annotations

from datetime import datetime

from django.db.models import F, OuterRef, Q, Subquery

from cluster.models import Replica, ReplicaTransition


def replicas_at(
    *, model: str, version: str, at: datetime
) -> list[tuple[str, ReplicaTransition | None]]:
    """The replicas that the version had then, by number, each with the state that it
    had come into last; None where no state is on record from before."""
    newest = ReplicaTransition.objects.filter(
        replica=OuterRef("pk"), at__lte=at
    ).order_by("-pk")
    rows = (
        Replica.objects.filter(
            Q(removed_at__isnull=True) | Q(removed_at__gt=at),
            version__model__name=model,
            version__name=version,
            created_at__lte=at,
        )
        .annotate(last=Subquery(newest.values("pk")[:1]))
        .order_by(F("number"))
        .values_list("pk", "last")
    )
    found = dict(rows)
    states = ReplicaTransition.objects.in_bulk(filter(None, found.values()))
    return [(id_, states.get(last)) for id_, last in found.items()]
