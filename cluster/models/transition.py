from __future__ import annotations

from django.db import models

from cluster.models.replica import Replica


class ReplicaTransition(models.Model):
    """A replica came into a state that all pages, the API and the router showed.

    ``label`` and ``cause`` are the words of ``cluster.health``, ``detail`` the
    evidence, ``said_by`` the gateway that decided it, or else the part of the control
    plane whose word it was. ``at`` is when it was noticed.
    """

    replica = models.ForeignKey(
        Replica, on_delete=models.CASCADE, related_name="transitions"
    )
    at = models.DateTimeField(db_index=True)
    label = models.CharField(max_length=32)
    cause = models.CharField(max_length=32)
    detail = models.CharField(max_length=500, blank=True)
    said_by = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["replica", "-id"], name="transition_newest")]

    def __str__(self) -> str:
        return f"{self.replica_id} {self.label}"
