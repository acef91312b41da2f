"""How traffic policy follows the fleet."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from cluster.actor import Actor
from cluster.models import Model, Version
from routing.contracts.route import WEIGHT_TOTAL_BP
from routing.models import Route
from routing.services.publish import snapshot_publish
from routing.services.routes import generation_write


def inventory_follow(*, reason: str, actor: Actor, **_: Any) -> None:
    """Receiver of ``cluster.announce.inventory_changed``: align routes, publish."""
    routes_align(actor=actor)
    snapshot_publish(reason=reason, actor=actor)


def routes_align(*, actor: Actor) -> None:
    """Give each model a route, and the first version of a model all its traffic.

    Later versions join a route only when someone gives them a weight.
    """
    for model in Model.objects.filter(route__isnull=True):
        Route.objects.get_or_create(model=model)
    for route in Route.objects.filter(generation=0, model__versions__isnull=False):
        _first_generation(route, actor=actor)


@transaction.atomic
def _first_generation(route: Route, *, actor: Actor) -> None:
    route = Route.objects.select_for_update().get(pk=route.pk)
    first: Version | None = route.model.versions.order_by("id").first()
    if route.generation == 0 and first is not None:
        generation_write(
            route=route,
            weights={first: WEIGHT_TOTAL_BP},
            settings={},
            reason=f"first version {first.name}",
            actor=actor,
        )
