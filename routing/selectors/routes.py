from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from cluster.errors import Missing
from cluster.models import Version
from cluster.selectors.names import name_possible
from routing.contracts.route import RouteSettings
from routing.models import Generation, Route


@dataclass(frozen=True)
class RouteView:
    """A route as it is in force: its versions in order, with their weights."""

    route: Route
    generation: Generation | None
    settings: RouteSettings
    weights: list[tuple[Version, int]]


def route_get(*, model: str) -> Route:
    routes = Route.objects.select_related("model")
    route = routes.filter(model__name=model).first() if name_possible(model) else None
    if route is None:
        raise Missing(_("There is no model %(name)s.") % {"name": model}, field="model")
    return route


def route_view(*, model: str) -> RouteView:
    """Raises ``Missing`` for an unknown model."""
    route = route_get(model=model)
    generation = (
        route.generations.prefetch_related("weights")
        .filter(number=route.generation)
        .first()
    )
    weights = (
        {row.version_id: row.weight_bp for row in generation.weights.all()}
        if generation
        else {}
    )
    versions = route.model.versions.order_by("id")
    return RouteView(
        route=route,
        generation=generation,
        settings=generation.decoded if generation else RouteSettings(),
        weights=[(version, weights.get(version.pk, 0)) for version in versions],
    )


def generation_list(*, route: Route) -> QuerySet[Generation]:
    """The generations of a route, newest first, with their weights."""
    return route.generations.prefetch_related("weights__version").order_by("-number")
