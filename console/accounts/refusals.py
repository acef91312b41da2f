"""Attempts that were not permitted leave a trace, though not one for each."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from cluster.actor import Actor
from cluster.models import AuditRecord
from cluster.services.audit import audit_write

NOTED_EVERY = timedelta(minutes=1)


def refusal_record(*, actor: Actor, path: str, scope: str) -> None:
    """Note that somebody tried what they may not; once a minute for each path."""
    target = path[:200]
    lately = AuditRecord.objects.filter(
        target=target,
        action="access.refused",
        actor_kind=actor.kind,
        actor_name=actor.name,
        at__gt=timezone.now() - NOTED_EVERY,
    )
    if not lately.exists():
        audit_write(
            actor=actor, action="access.refused", target=target, after={"scope": scope}
        )
