from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone

from console.accounts.grants import SCOPES_OF, Grant, Role, Scope
from routing.models import Team


class User(AbstractUser):
    """A person who logs in to the console. ``leads`` are the teams whose keys they
    manage whatever their role; ``time_zone`` is an IANA name, empty for UTC."""

    role = models.CharField(
        max_length=16,
        default=Role.VIEWER.value,
        choices=[(role.value, role.value) for role in Role],
    )
    leads = models.ManyToManyField(Team, blank=True, related_name="leaders")
    time_zone = models.CharField(max_length=64, blank=True)
    # Shortcuts of a single letter get in the way of who dictates to the computer.
    shortcuts = models.BooleanField(default=True)

    @property
    def grant(self) -> Grant:
        role = Role(self.role)
        scopes = SCOPES_OF[role]
        if Scope.KEYS in scopes:
            return Grant(role, scopes)
        leads = frozenset(self.leads.values_list("slug", flat=True))
        return Grant(role, scopes, leads)


class AccessToken(models.Model):
    """A token for the management API; acts as its user, stored as a hash.

    ``scopes`` are the names of what it may do at most; null is all its user may.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens"
    )
    name = models.CharField(max_length=100)
    secret_sha256 = models.CharField(max_length=64, unique=True)
    scopes: models.JSONField[Any] = models.JSONField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    last_used_from = models.CharField(max_length=64, blank=True)
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name

    @property
    def grant(self) -> Grant:
        of_user: Grant = self.user.grant
        if self.scopes is None:
            return Grant(of_user.role, of_user.scopes, of_user.leads, self.name)
        own = frozenset(Scope(name) for name in self.scopes)
        leads = of_user.leads if Scope.KEYS in own else frozenset()
        return Grant(of_user.role, of_user.scopes & own, leads, self.name)


class SignIn(models.Model):
    """A browser that is logged in, for as long as its session lives."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sign_ins"
    )
    session_key = models.CharField(max_length=40, unique=True)
    created_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)
    address = models.CharField(max_length=64, blank=True)
    agent = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-seen_at"]

    def __str__(self) -> str:
        return f"{self.user_id} {self.address}"


class LoginAttempt(models.Model):
    """A failed login, or one whose password is being looked at."""

    name_sha256 = models.CharField(max_length=64)
    address = models.CharField(max_length=64, blank=True)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [
            models.Index(fields=["address", "name_sha256", "at"]),
            models.Index(fields=["name_sha256", "at"]),
        ]

    def __str__(self) -> str:
        return f"{self.address} {self.at}"
