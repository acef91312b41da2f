from __future__ import annotations

from typing import Any

from cluster.actor import Actor
from cluster.models import AuditRecord


def audit_write(
    *,
    actor: Actor,
    action: str,
    target: str,
    before: Any = None,
    after: Any = None,
) -> None:
    """Record a change; call it inside the transaction that makes the change."""
    AuditRecord.objects.create(
        actor_kind=actor.kind,
        actor_name=actor.name,
        actor_address=actor.address,
        action=action,
        target=target,
        before=before,
        after=after,
    )
