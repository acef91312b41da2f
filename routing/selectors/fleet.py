"""Models with their versions, shares and replicas, in a fixed number of queries."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from django.db.models import F
from django.utils.translation import gettext as _

from cluster.errors import Missing
from cluster.models import Model, Version
from cluster.selectors import ReplicaView, replica_list, replica_views
from routing.models import GenerationWeight


@dataclass(frozen=True)
class VersionView:
    """A version with its share and its replicas that were not removed."""

    version: Version
    weight_bp: int
    replicas: list[ReplicaView]

    @property
    def wanted(self) -> int:
        """Replicas that people want to serve."""
        return sum(
            view.replica.admin_state == "enabled" and view.replica.wanted_running
            for view in self.replicas
        )

    @property
    def ready(self) -> int | None:
        """Replicas that the router may choose; None while Redis is away."""
        states = [view.state for view in self.replicas]
        if None in states:
            return None
        return sum(state is not None and state.eligible for state in states)


@dataclass(frozen=True)
class ModelView:
    """A model as it stands; generation 0 means that its route has no versions yet."""

    model: Model
    generation: int
    versions: list[VersionView]

    @property
    def wanted(self) -> int:
        return sum(version.wanted for version in self.versions)

    @property
    def ready(self) -> int | None:
        counts = [version.ready for version in self.versions]
        if None in counts:
            return None
        return sum(count or 0 for count in counts)


def fleet_list(*, model: str = "") -> list[ModelView]:
    """Every model by name, or the one that ``model`` names (else none)."""
    models = Model.objects.select_related("route").order_by("name")
    versions = Version.objects.order_by("id")
    weights = GenerationWeight.objects.filter(
        generation__number=F("generation__route__generation")
    )
    if model:
        models = models.filter(name=model)
        versions = versions.filter(model__name=model)
        weights = weights.filter(version__model__name=model)
    weight_of = dict(weights.values_list("version_id", "weight_bp"))
    replicas: dict[int, list[ReplicaView]] = defaultdict(list)
    for view in replica_views(replica_list(model=model)):
        replicas[view.replica.version_id].append(view)
    views: dict[int, list[VersionView]] = defaultdict(list)
    for version in versions:
        views[version.model_id].append(
            VersionView(version, weight_of.get(version.pk, 0), replicas[version.pk])
        )
    return [
        ModelView(
            row, row.route.generation if hasattr(row, "route") else 0, views[row.pk]
        )
        for row in models
    ]


def model_view(*, model: str) -> ModelView:
    """Raises ``Missing`` for an unknown model."""
    for view in fleet_list(model=model):
        return view
    raise Missing(_("There is no model %(name)s.") % {"name": model}, field="model")
