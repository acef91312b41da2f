from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from cluster.models import AuditRecord


def audit_list(*, target: str = "") -> QuerySet[AuditRecord]:
    """Audit records, newest first; of one object when ``target`` names it."""
    records = AuditRecord.objects.order_by("-id")
    return records.filter(target=target) if target else records


@dataclass(frozen=True)
class AuditFind:
    """What is looked for; empty is anything. ``actor`` is a name; ``action`` a code as
    ``key.issue`` or the kind before its dot; ``text`` stands anywhere in actor, action,
    target or address. From ``since`` on and before ``until``."""

    actor: str = ""
    action: str = ""
    target: str = ""
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None


def audit_page(
    *, find: AuditFind, before: int | None = None, limit: int
) -> list[AuditRecord]:
    """The newest records that fit, of those with a lower id than ``before``.

    The ids are found first: an index alone tells them (``audit_text``), so that what
    200 000 records hold is not read to find nothing.
    """
    found = audit_find(find)
    if before is not None:
        found = found.filter(pk__lt=before)
    ids = list(found.values_list("pk", flat=True)[:limit])
    rows = AuditRecord.objects.in_bulk(ids)
    return [rows[id_] for id_ in ids]


def audit_find(find: AuditFind) -> QuerySet[AuditRecord]:
    """The records that fit, newest first."""
    records = audit_list(target=find.target)
    if find.actor:
        records = records.filter(actor_name=find.actor)
    if "." in find.action:
        records = records.filter(action=find.action)
    elif find.action:
        records = records.filter(action__startswith=f"{find.action}.")
    if find.since is not None:
        records = records.filter(at__gte=find.since)
    if find.until is not None:
        records = records.filter(at__lt=find.until)
    if find.text:
        fields = ("actor_name", "action", "target", "actor_address")
        anywhere = Q()
        for name in fields:
            anywhere |= Q(**{f"{name}__icontains": find.text})
        records = records.filter(anywhere)
    return records
