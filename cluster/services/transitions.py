"""The history of states: a row whenever what everybody sees of a replica changed."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import OuterRef, Subquery

from cluster import live
from cluster.announce import live_announce
from cluster.health import Cause, Record, State
from cluster.models import Model, Replica, ReplicaTransition
from cluster.selectors import states_read

KEPT = timedelta(days=30)
_CHUNK = 5_000
_DETAIL_CHARS = 500
_LOCK = "sluice:transitions#lock"
# Longer than a pass takes, so that only a dead one leaves it to expire.
_LOCK_MS = 10_000

_PASSIVE = (
    *(Cause.FAILURES_IN_A_ROW, Cause.FAILURE_SHARE, Cause.TRIAL_FAILED),
    *(Cause.HANG, Cause.PASSIVE),
)
_SPEAKERS = {
    Cause.ADMIN_DISABLED: "admin",
    Cause.ADMIN_DRAINING: "admin",
    Cause.PROCESS_STOPPED: "node",
    Cause.PROCESS_STOPPING: "node",
    Cause.PROCESS_STARTING: "node",
    Cause.PROCESS_EXITED: "node",
    Cause.START_FAILED: "node",
    Cause.NODE_SILENT: "scheduler",
}


def transitions_write(*, now: datetime) -> list[str]:
    """Note the replicas whose label or cause is not the last one noted; their ids.

    One call at a time; another returns at once, for the next turn sees the same.
    Where no record changed and time alone changes nothing yet, none is read. Raises
    ``redis.RedisError``: what nobody can see has no history.
    """
    client = live.redis_client()
    if not client.set(_LOCK, "1", nx=True, px=_LOCK_MS):
        return []
    try:
        if (mark := live.transitions_mark()) is None:
            return []
        records, states = states_read(set(Model.objects.values_list("pk", flat=True)))
        changed = _write(records, states, now)
        live.transitions_done(mark, settled=_is_settled(records))
        return changed
    finally:
        client.delete(_LOCK)


@transaction.atomic
def _write(
    records: dict[str, Record], states: dict[str, State], now: datetime
) -> list[str]:
    newest = ReplicaTransition.objects.filter(replica=OuterRef("pk")).order_by("-pk")
    last = Replica.objects.filter(pk__in=states).annotate(
        last_label=Subquery(newest.values("label")[:1]),
        last_cause=Subquery(newest.values("cause")[:1]),
    )
    rows = [
        _row(id_, records[id_], states[id_], now)
        for id_, label, cause in last.values_list("pk", "last_label", "last_cause")
        if (label, cause) != (states[id_].label, states[id_].cause)
    ]
    ReplicaTransition.objects.bulk_create(rows, batch_size=500)
    for row in rows:
        live_announce({"type": "replica.changed", "id": row.replica_id})
    return [row.replica_id for row in rows]


def _row(
    replica_id: str, record: Record, state: State, now: datetime
) -> ReplicaTransition:
    passive = record.passive
    said_by = _SPEAKERS.get(state.cause, "prober")
    if state.cause in _PASSIVE and passive is not None:
        said_by = passive.said_by
    return ReplicaTransition(
        replica_id=replica_id,
        at=now,
        label=state.label,
        cause=state.cause,
        detail=state.detail[:_DETAIL_CHARS],
        said_by=said_by[:64],
    )


def _is_settled(records: dict[str, Record]) -> bool:
    """Whether no state changes before some record does: no ejection passes."""
    return not any(
        record.passive and record.passive.until for record in records.values()
    )


def transitions_prune(*, now: datetime) -> int:
    """Delete what is older than 30 days, in chunks that keep no writer waiting. The
    last row of a replica stays: it says what it has been since."""
    newest = ReplicaTransition.objects.filter(replica=OuterRef("replica")).order_by(
        "-pk"
    )
    old = (
        ReplicaTransition.objects.filter(at__lt=now - KEPT)
        .exclude(pk=Subquery(newest.values("pk")[:1]))
        .order_by("pk")
    )
    pruned = 0
    while chunk := list(old.values_list("pk", flat=True)[:_CHUNK]):
        pruned += ReplicaTransition.objects.filter(pk__in=chunk).delete()[0]
    return pruned
