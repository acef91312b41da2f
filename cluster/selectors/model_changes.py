"""Every change on record that touched one model, its versions or its replicas."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q, QuerySet

from cluster.models import AuditRecord, Model, Replica


def model_changes(
    *, model: Model, since: datetime, until: datetime
) -> QuerySet[AuditRecord]:
    """Newest first, ``until`` left out."""
    replicas = Replica.objects.filter(version__model=model).values("pk")
    of_model = Q(target=model.name) & (
        Q(action__startswith="model.")
        | Q(action__startswith="weights.")
        | Q(action__startswith="route.")
    )
    of_version = Q(action__startswith="version.", target__startswith=f"{model.name} ")
    of_replica = Q(action__startswith="replica.", target__in=replicas)
    records = AuditRecord.objects.filter(of_model | of_version | of_replica)
    return records.filter(at__gte=since, at__lt=until).order_by("-id")
