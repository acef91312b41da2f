from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import redis
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from cluster.errors import Missing
from cluster.live import redis_client
from routing.contracts import names
from routing.models import Revision


def revision_list() -> QuerySet[Revision]:
    """Revisions, newest first, without their bodies, which may be large."""
    return Revision.objects.defer("body").order_by("-number")


def revision_get(*, number: int) -> Revision:
    revision = Revision.objects.filter(pk=number).first()
    if revision is None:
        raise Missing(_("There is no revision %(number)d.") % {"number": number})
    return revision


def revision_acks(revision: Revision) -> dict[str, float] | None:
    """When each gateway applied it, first to last, as Unix seconds by gateway id;
    None while Redis is away. The marks expire after ``names.ACKS_KEPT_S``."""
    try:
        raw = redis_client().hgetall(names.acks(revision.epoch, revision.number))
    except redis.RedisError:
        return None
    marks = cast("dict[bytes, bytes]", raw)
    found = sorted((float(at), gateway.decode()) for gateway, at in marks.items())
    return {gateway: at for at, gateway in found}


def revisions_acknowledged(revisions: Sequence[Revision]) -> dict[int, int]:
    """How many gateways applied each revision, by number, in one round trip; empty
    while Redis is away."""
    try:
        pipeline = redis_client().pipeline(transaction=False)
        for revision in revisions:
            pipeline.hlen(names.acks(revision.epoch, revision.number))
        counts = pipeline.execute()
    except redis.RedisError:
        return {}
    return dict(zip((r.number for r in revisions), counts, strict=True))
