from __future__ import annotations

from typing import Any

from django.db import models


class AuditRecord(models.Model):
    """Who changed what, when and from where; written with the change itself.

    The database refuses to change or delete one.
    """

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor_kind = models.CharField(max_length=16)
    actor_name = models.CharField(max_length=150)
    actor_address = models.CharField(max_length=64, blank=True)
    action = models.CharField(max_length=64)
    target = models.CharField(max_length=200)
    before: models.JSONField[Any] = models.JSONField(null=True)
    after: models.JSONField[Any] = models.JSONField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["target", "-id"]),
            models.Index(fields=["actor_name", "-id"], name="audit_by_actor"),
            models.Index(fields=["action", "-id"], name="audit_by_action"),
            # All that a search for a text looks at: what a record holds is long.
            models.Index(
                fields=["-id", "actor_name", "action", "target", "actor_address"],
                name="audit_text",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.target}"
