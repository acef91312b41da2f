"""Every change on record that touched one model, its versions or its replicas."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q, QuerySet

from cluster.models import AuditRecord, Model, Replica


def model_changes(
    *, model: Model, since: datetime, until: datetime
) -> QuerySet[AuditRecord]:
    """Newest first, ``until`` left out."""
    versions = [
        f"{model.name} {name}" for name in model.versions.values_list("name", flat=True)
    ]
    replicas = list(
        Replica.objects.filter(version__model=model).values_list("pk", flat=True)
    )
    of_model = Q(target=model.name) & (
        Q(action__startswith="model.")
        | Q(action__startswith="weights.")
        | Q(action__startswith="route.")
    )
    of_version = Q(action__startswith="version.", target__in=versions)
    of_replica = Q(action__startswith="replica.", target__in=replicas)
    # The targets once more, alone: so the index is used, and not the whole log read.
    targets = Q(target__in=[model.name, *versions, *replicas])
    records = AuditRecord.objects.filter(
        targets, of_model | of_version | of_replica, at__gte=since, at__lt=until
    )
    return records.order_by("-id")
