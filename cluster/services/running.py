"""Starting, stopping and draining replicas: what people want, step by step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from cluster.actor import SYSTEM, Actor
from cluster.announce import live_announce
from cluster.drivers.draining import Drain, DrainAct, drain_next
from cluster.errors import Refused
from cluster.health import Admin
from cluster.models import Replica
from cluster.selectors.inflight import inflight_count, inflight_read
from cluster.services.audit import audit_write
from cluster.services.replicas import (
    process_check,
    replica_admin_set,
    replica_follow,
)

DRAIN_DEADLINE_S = 300.0
_DEADLINE_MOST_S = 86_400.0


class RunningSet(NamedTuple):
    """``cut`` is how many requests were open at a process that was told to end, None
    when the gateways did not say; 0 for a start."""

    replica: Replica
    cut: int | None


@transaction.atomic
def replica_running_set(
    *, replica: Replica, running: bool, force: bool = False, actor: Actor
) -> RunningSet:
    """Start or stop the process of a replica; the node does it.

    A replica that has requests open is drained first; ``force`` stops it now.
    """
    process_check(replica)
    if running:
        return RunningSet(_start(replica, actor), 0)
    cut = inflight_count(replica_id=replica.id)
    if cut and not force and replica.wanted_running:
        if replica.drain_then_stop and replica.admin_state == Admin.DRAINING:
            # Asked for again: the deadline of the first time stands.
            return RunningSet(replica, 0)
        return RunningSet(
            replica_drain(replica=replica, then_stop=True, actor=actor), 0
        )
    stopped = _stop(replica, actor=actor, after={"cut": cut}, where=Q())
    return RunningSet(replica, cut if stopped else 0)


def _start(replica: Replica, actor: Actor) -> Replica:
    changed = Replica.objects.filter(
        pk=replica.pk, removed_at__isnull=True, wanted_running=False
    ).update(wanted_running=True)
    if changed:
        audit_write(
            actor=actor,
            action="replica.start",
            target=replica.id,
            before={"running": False},
            after={"running": True},
        )
        replica.wanted_running = True
        _rotation_return(replica, actor)
        replica_follow(replica, reason="", actor=actor)
    return replica


@transaction.atomic
def replica_restart(*, replica: Replica, actor: Actor) -> RunningSet:
    """Replace the process by a fresh one, and start it if it was stopped."""
    process_check(replica)
    cut = inflight_count(replica_id=replica.id)
    changed = Replica.objects.filter(pk=replica.pk, removed_at__isnull=True).update(
        wanted_running=True, wanted_start=F("wanted_start") + 1
    )
    if not changed:
        return RunningSet(replica, 0)
    running = replica.wanted_running
    replica.refresh_from_db()
    audit_write(
        actor=actor,
        action="replica.restart",
        target=replica.id,
        before={"running": running, "start": replica.wanted_start - 1},
        after={"running": True, "start": replica.wanted_start, "cut": cut},
    )
    _rotation_return(replica, actor)
    replica_follow(replica, reason="", actor=actor)
    return RunningSet(replica, cut)


def _rotation_return(replica: Replica, actor: Actor) -> None:
    """Whoever starts a replica that was drained to be stopped wants it to serve."""
    if replica.drain_then_stop and replica.admin_state == Admin.DRAINING:
        replica_admin_set(replica=replica, state=Admin.ENABLED, actor=actor)


@transaction.atomic
def replica_drain(
    *,
    replica: Replica,
    then_stop: bool = False,
    deadline_s: float = DRAIN_DEADLINE_S,
    actor: Actor,
) -> Replica:
    """Send nothing new there and let what is open end in peace.

    With ``then_stop`` the process is stopped when nothing is open any more, and
    after ``deadline_s`` seconds whatever is.
    """
    if then_stop:
        process_check(replica)
    if not 0 < deadline_s <= _DEADLINE_MOST_S:
        raise Refused(
            _("The deadline must lie within a day."), code="invalid", field="deadline_s"
        )
    replica_admin_set(replica=replica, state=Admin.DRAINING, actor=actor)
    deadline = timezone.now() + timedelta(seconds=deadline_s) if then_stop else None
    changed = Replica.objects.filter(
        pk=replica.pk, removed_at__isnull=True, admin_state=Admin.DRAINING
    ).update(drain_then_stop=then_stop, drain_deadline=deadline)
    if changed:
        replica.drain_then_stop, replica.drain_deadline = then_stop, deadline
        live_announce({"type": "replica.changed", "id": replica.pk})
        if then_stop:
            audit_write(
                actor=actor,
                action="replica.drain_then_stop",
                target=replica.id,
                before={"then_stop": False},
                after={"then_stop": True, "deadline_s": deadline_s},
            )
        transaction.on_commit(_drains_nudge)
    return replica


def drains_advance(*, now: float) -> int:
    """Take every draining replica one step on; how many still wait.

    ``now`` is in Unix seconds of the control plane, whose machines must agree on
    the time to seconds; the clock of a node or a gateway is never compared.
    """
    waiting = Q(drained_at__isnull=True) | Q(drain_then_stop=True, wanted_running=True)
    draining = Replica.objects.filter(
        waiting, admin_state=Admin.DRAINING, removed_at__isnull=True
    )
    rows = list(draining.select_related("node", "version__model"))
    open_ = inflight_read() if rows else None
    counts = [None if open_ is None else open_.count(row.id) for row in rows]
    acts = [_advance(*pair, now) for pair in zip(rows, counts, strict=True)]
    return acts.count(DrainAct.WAIT)


@transaction.atomic
def _advance(replica: Replica, open_requests: int | None, now: float) -> DrainAct:
    drain = Drain(
        since=replica.admin_since.timestamp(),
        then_stop=replica.drain_then_stop and replica.wanted_running,
        deadline=_unix(replica.drain_deadline),
        drained_at=_unix(replica.drained_at),
    )
    step = drain_next(drain, open_requests, now)
    # Whoever ended the drain meanwhile has the last word.
    still = Q(admin_state=Admin.DRAINING, admin_since=replica.admin_since)
    if step.drained_at != drain.drained_at:
        at = datetime.fromtimestamp(step.drained_at, UTC) if step.drained_at else None
        Replica.objects.filter(still, pk=replica.pk).update(drained_at=at)
        live_announce({"type": "replica.changed", "id": replica.pk})
        replica.drained_at = at
    if step.act in (DrainAct.STOP, DrainAct.CUT):
        after = {"drained": step.act is DrainAct.STOP, "cut": open_requests}
        still &= Q(drain_then_stop=True)
        _stop(replica, actor=SYSTEM, after=after, where=still)
    return step.act


def _stop(replica: Replica, *, actor: Actor, after: dict[str, Any], where: Q) -> bool:
    """Whether it was still wanted to run."""
    changed = Replica.objects.filter(
        where, pk=replica.pk, removed_at__isnull=True, wanted_running=True
    ).update(wanted_running=False)
    if changed:
        audit_write(
            actor=actor,
            action="replica.stop",
            target=replica.id,
            before={"running": True},
            after={"running": False} | after,
        )
        replica.wanted_running = False
        replica_follow(replica, reason="", actor=actor)
    return bool(changed)


def _unix(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


def _drains_nudge() -> None:
    # Tasks import services; only this nudge goes the other way.
    from cluster.tasks import drains_nudge

    drains_nudge()
