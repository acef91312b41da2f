from __future__ import annotations

from django.db.models import QuerySet

from cluster.models import AuditRecord


def audit_list(*, target: str = "") -> QuerySet[AuditRecord]:
    """Audit records, newest first; of one object when ``target`` names it."""
    records = AuditRecord.objects.order_by("-id")
    return records.filter(target=target) if target else records
