"""What is known of a request of which no outcome is kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Sum

from cluster.selectors import inflight_read
from cluster.selectors.names import name_possible
from routing.models import TelemetryCursor, TelemetrySource
from routing.selectors.outcomes import id_moment, outcome_oldest


@dataclass(frozen=True)
class Whereabouts:
    """``arrived_at`` is what the id says, ``open_at`` the replica where the request
    is still open. ``oldest`` is the arrival of the oldest outcome that is kept and
    ``taken_at`` when outcomes were last taken in; None where there are none.
    ``lost`` and ``unfinished`` count, since the arrival, outcomes that never came, and
    requests that ended with their gateway."""

    arrived_at: datetime | None
    open_at: str
    oldest: datetime | None
    taken_at: datetime | None
    lost: int
    unfinished: int


def outcome_whereabouts(*, request_id: UUID) -> Whereabouts:
    arrived_at = id_moment(request_id)
    oldest = outcome_oldest()
    cursor = TelemetryCursor.objects.order_by("-moved_at").first()
    return Whereabouts(
        arrived_at=arrived_at,
        open_at=_open_at(request_id.hex),
        oldest=oldest.at if oldest else None,
        taken_at=cursor.moved_at if cursor else None,
        lost=_since("lost", "lost_at", arrived_at),
        unfinished=_since("unfinished", "closed_at", arrived_at),
    )


def _open_at(request_id: str) -> str:
    now = inflight_read()
    for replica_id, requests in (now.requests if now else {}).items():
        here = any(request.request_id == request_id for request in requests)
        if here and name_possible(replica_id):
            return replica_id
    return ""


def _since(count: str, when: str, arrived_at: datetime | None) -> int:
    if arrived_at is None:
        return 0
    sources = TelemetrySource.objects.filter(**{f"{when}__gte": arrived_at})
    total: int = sources.aggregate(total=Sum(count, default=0))["total"]
    return total
