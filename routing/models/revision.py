from __future__ import annotations

from django.db import models


class Revision(models.Model):
    """One numbered, published snapshot of all routes; rows are never changed."""

    number = models.PositiveBigIntegerField(primary_key=True)
    epoch = models.PositiveBigIntegerField()
    body = models.BinaryField()
    digest = models.CharField(max_length=64)
    reason = models.CharField(max_length=200)
    actor = models.CharField(max_length=170)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"revision {self.number}"
