from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from cluster.models import Model, Version
from routing.contracts.route import WEIGHT_TOTAL_BP, RouteSettings, settings_decode


class Route(models.Model):
    """A model's traffic policy: a pointer to the generation that is in force.

    The pointer moves forward only, and a trigger in the database lets it move
    only to a generation whose weights sum to 10 000 (or that has none at all).
    """

    model = models.OneToOneField(Model, on_delete=models.CASCADE, related_name="route")
    generation = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"route of {self.model.name}"


class Generation(models.Model):
    """One numbered state of one route, whole and never changed; any can be restored."""

    route = models.ForeignKey(
        Route, on_delete=models.CASCADE, related_name="generations"
    )
    number = models.PositiveIntegerField()
    settings: models.JSONField[dict[str, Any]] = models.JSONField(default=dict)
    reason = models.CharField(max_length=200, blank=True)
    actor = models.CharField(max_length=170)
    restored_from = models.PositiveIntegerField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(
                fields=["route", "number"], name="generation_number_unique_in_route"
            )
        ]

    def __str__(self) -> str:
        return f"generation {self.number} of {self.route}"

    @property
    def decoded(self) -> RouteSettings:
        return settings_decode(self.settings)


class GenerationWeight(models.Model):
    """A version's share, in basis points, in one generation."""

    generation = models.ForeignKey(
        Generation, on_delete=models.CASCADE, related_name="weights"
    )
    version = models.ForeignKey(Version, on_delete=models.RESTRICT, related_name="+")
    weight_bp = models.PositiveIntegerField()

    class Meta:
        ordering = ["version_id"]
        constraints = [
            models.UniqueConstraint(
                fields=["generation", "version"], name="weight_unique_in_generation"
            ),
            models.CheckConstraint(
                condition=Q(weight_bp__gte=0, weight_bp__lte=WEIGHT_TOTAL_BP),
                name="weight_between_0_and_10000",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.version.name} {self.weight_bp} bp"
