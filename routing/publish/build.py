"""The one mapper from rows to the snapshot's values."""

from __future__ import annotations

import time
from collections import defaultdict

from django.db.models import F

from cluster.models import Replica, Version
from routing.contracts.snapshot import ReplicaEntry, RouteEntry, VersionEntry
from routing.models import Generation, GenerationWeight, Route


def timestamp_now() -> float:
    return time.time()


def routes_build() -> tuple[RouteEntry, ...]:
    """Every route, with all versions of its model, in a stable order.

    Five queries whatever the size of the fleet. Call it inside a transaction, so
    that all of them see one state.
    """
    routes = list(Route.objects.select_related("model").order_by("model__name"))
    generations = {
        generation.route_id: generation
        for generation in Generation.objects.filter(number=F("route__generation"))
    }
    weights: dict[tuple[int, int], int] = {
        (row.generation_id, row.version_id): row.weight_bp
        for row in GenerationWeight.objects.filter(generation__in=generations.values())
    }
    versions: dict[int, list[Version]] = defaultdict(list)
    for version in Version.objects.order_by("id"):
        versions[version.model_id].append(version)
    replicas: dict[int, list[ReplicaEntry]] = defaultdict(list)
    for replica in Replica.objects.filter(removed_at__isnull=True).order_by("number"):
        if replica.address:
            replicas[replica.version_id].append(
                ReplicaEntry(id=replica.id, address=replica.address)
            )
    return tuple(
        RouteEntry(
            model=route.model.name,
            kind=route.model.kind,
            created=int(route.model.created_at.timestamp()),
            generation=route.generation,
            settings=generations[route.pk].decoded,
            versions=tuple(
                VersionEntry(
                    name=version.name,
                    engine=version.engine,
                    served_name=version.served_name,
                    weight_bp=weights.get((generations[route.pk].pk, version.pk), 0),
                    replicas=tuple(replicas[version.pk]),
                )
                for version in versions[route.model_id]
            ),
        )
        for route in routes
        if route.pk in generations
    )
