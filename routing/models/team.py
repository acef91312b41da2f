from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from cluster.models.model import name_validator
from routing.models.list_index import ListIndex


class Team(models.Model):
    """Who may call: keys belong to teams, and so will limits and budgets."""

    slug = models.SlugField(max_length=63, unique=True, validators=[name_validator])
    name = models.CharField(max_length=100)
    disabled_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    """One key; its secret is stored as a hash and shown once, when it is issued."""

    id = models.CharField(primary_key=True, max_length=12, editable=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="keys")
    name = models.CharField(max_length=100)
    # Who answers for it: a person or a system, in whatever words the team uses.
    owner = models.CharField(max_length=100, blank=True, default="")
    tags: models.JSONField[list[str]] = models.JSONField(default=list)
    secret_sha256 = models.CharField(max_length=64, editable=False)
    last_four = models.CharField(max_length=4, editable=False)
    # None means every model, an empty list none.
    model_names: models.JSONField[list[str] | None] = models.JSONField(null=True)
    scopes: models.JSONField[list[str]] = models.JSONField(default=list)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True, editable=False)
    # Of the last outcome with this key that was taken in; the address of its client.
    last_used_at = models.DateTimeField(null=True, editable=False)
    last_used_from = models.CharField(max_length=45, default="", editable=False)
    created_by = models.CharField(max_length=170)
    created_at = models.DateTimeField(auto_now_add=True)
    # All that a search looks at, as ``routing.services.keys`` puts it together.
    search_text = models.TextField(default="", editable=False)
    # Counts the changes that the gateways must learn of; ``sent`` is the last one
    # that is known to stand in Redis.
    change = models.PositiveIntegerField(default=1, editable=False)
    sent = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        ordering = ["-created_at", "id"]
        indexes = [
            ListIndex(
                fields=["-created_at", "id"],
                carried=["team", "revoked_at", "expires_at", "search_text"],
                name="key_by_age",
            ),
            ListIndex(
                fields=["team", "-created_at", "id"],
                carried=["revoked_at", "expires_at", "search_text"],
                name="key_by_team",
            ),
            ListIndex(
                fields=["-created_at", "id"],
                carried=["team", "revoked_at", "expires_at", "search_text"],
                condition=Q(last_used_at__isnull=True),
                name="key_never_used",
            ),
            models.Index(
                fields=["team", "expires_at"],
                condition=Q(revoked_at__isnull=True),
                name="key_live_by_team",
            ),
            # With its second column SQLite counts from the index alone.
            models.Index(
                fields=["expires_at", "revoked_at"],
                condition=Q(revoked_at__isnull=True),
                name="key_by_expiry",
            ),
            models.Index(
                fields=["id"], condition=Q(sent__lt=F("change")), name="key_unsent"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} (sk-{self.id}…{self.last_four})"
