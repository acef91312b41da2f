from __future__ import annotations

from django.db import models

from cluster.models.model import name_validator


class Node(models.Model):
    """A machine that runs replicas and one Celery worker (queue ``node.<name>``)."""

    name = models.CharField(max_length=63, unique=True, validators=[name_validator])
    # Where replicas of this node are reached from the gateways.
    host = models.CharField(max_length=255, default="127.0.0.1")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def queue(self) -> str:
        return f"node.{self.name}"
