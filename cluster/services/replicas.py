"""What people want of a replica. The node reconciles, the router follows."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial

import redis
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from cluster import live
from cluster.actor import Actor
from cluster.announce import announce_inventory, live_announce
from cluster.errors import Refused
from cluster.health import Admin, AdminAxis
from cluster.health.passive import passive_readmitted
from cluster.models import Driver, Node, Replica, Version
from cluster.selectors.inflight import inflight_count
from cluster.services.addresses import address_clean
from cluster.services.audit import audit_write
from cluster.services.models import choice_check


@transaction.atomic
def replica_create(
    *,
    version: Version,
    driver: str,
    address: str = "",
    node: Node | None = None,
    actor: Actor,
) -> Replica:
    """A new replica: at a static address, or as a process that the node starts."""
    address = _place_check(driver, address, node)
    # Rows of one version are numbered one at a time: the version row is the lock.
    version = Version.objects.select_for_update().get(pk=version.pk)
    duplicate = Refused(
        gettext_lazy("The version has a replica at this address."),
        code="duplicate",
        field="address",
    )
    if (
        address
        and version.replicas.filter(address=address, removed_at__isnull=True).exists()
    ):
        raise duplicate
    number, replica_id = _next_identity(version)
    try:
        with transaction.atomic():
            replica = Replica.objects.create(
                id=replica_id,
                version=version,
                number=number,
                driver=driver,
                address=address,
                node=node,
            )
    except IntegrityError as error:
        raise duplicate from error
    if version.used_at is None:
        Version.objects.filter(pk=version.pk).update(used_at=timezone.now())
    audit_write(
        actor=actor,
        action="replica.create",
        target=replica_id,
        after={"driver": driver, "address": address, "node": node and node.name},
    )
    replica_follow(replica, reason=f"replica {replica_id} added", actor=actor)
    return replica


def _place_check(driver: str, address: str, node: Node | None) -> str:
    """Where such a replica may run; the address as it is stored."""
    choice_check(driver, Driver.values, field="driver")
    if driver == Driver.STATIC:
        if node is not None:
            raise Refused(
                _("A static replica has no node."), code="unexpected", field="node"
            )
        return address_clean(address)
    if node is None:
        raise Refused(
            _("Name the node that runs the process."), code="required", field="node"
        )
    if address:
        raise Refused(
            _("The node chooses the address of a process."),
            code="unexpected",
            field="address",
        )
    return address


def _next_identity(version: Version) -> tuple[int, str]:
    number: int = version.replicas.aggregate(last=Max("number"))["last"] or 0
    stem = re.sub(r"[^a-z0-9]+", "-", f"{version.model.name}-{version.name}".lower())
    while True:
        number += 1
        replica_id = f"{stem.strip('-')}-{number}"
        if not Replica.objects.filter(pk=replica_id).exists():
            return number, replica_id


# A drain that is asked for begins afresh; any other state ends one.
_NO_DRAIN = {"drain_then_stop": False, "drain_deadline": None, "drained_at": None}


@transaction.atomic
def replica_admin_set(*, replica: Replica, state: Admin, actor: Actor) -> Replica:
    """Enable, drain or disable: whether the router may send new requests there.

    Enabling also vouches for a replica that its requests put out of rotation.
    """
    now = timezone.now()
    changed = (
        Replica.objects.filter(pk=replica.pk, removed_at__isnull=True)
        .exclude(admin_state=state)
        .update(admin_state=state, admin_since=now, **_NO_DRAIN)
    )
    if changed:
        audit_write(
            actor=actor,
            action=f"replica.{_VERBS[state]}",
            target=replica.id,
            before={"state": replica.admin_state},
            after={"state": state},
        )
        replica.admin_state, replica.admin_since = state, now
        for name, value in _NO_DRAIN.items():
            setattr(replica, name, value)
        replica_follow(replica, reason="", actor=actor)
    if state is Admin.ENABLED:
        transaction.on_commit(partial(_readmit, replica, actor))
    return replica


def _readmit(replica: Replica, actor: Actor) -> None:
    """Without Redis there is no ejection that could be ended."""
    with suppress(redis.RedisError):
        if live.passive_change(replica.id, passive_readmitted):
            audit_write(
                actor=actor,
                action="replica.readmit",
                target=replica.id,
                before={"ejected": True},
                after={"ejected": False},
            )


_VERBS = {Admin.ENABLED: "enable", Admin.DRAINING: "drain", Admin.DISABLED: "disable"}


@transaction.atomic
def replica_remove(*, replica: Replica, actor: Actor) -> int | None:
    """Take a replica out for good; its process is stopped, its row stays on record.

    How many open requests that cuts off, None when the gateways did not say. None is
    cut at a static replica: it runs on, and what is open there ends in peace.
    """
    cut: int | None = 0
    if replica.driver == Driver.PROCESS:
        cut = inflight_count(replica_id=replica.id)
    changed = Replica.objects.filter(pk=replica.pk, removed_at__isnull=True).update(
        removed_at=timezone.now(), wanted_running=False
    )
    if not changed:
        return 0
    audit_write(
        actor=actor,
        action="replica.remove",
        target=replica.id,
        before={
            "driver": replica.driver,
            "address": replica.address,
            "node": replica.node and replica.node.name,
            "state": replica.admin_state,
        },
        after={"cut": cut},
    )
    replica_follow(replica, reason=f"replica {replica.id} removed", actor=actor)
    # Its live record may stay as it is for a while: only this tells the open pages.
    live_announce({"type": "replica.changed", "id": replica.id})
    if replica.driver == Driver.STATIC:
        # That of a process is dropped by its node, once it has ended.
        transaction.on_commit(partial(_record_drop, replica.id))
    return cut


@transaction.atomic
def replica_address_set(*, replica: Replica, address: str, actor: Actor) -> None:
    """The node's own word: where the process that it started answers."""
    changed = (
        Replica.objects.filter(pk=replica.pk)
        .exclude(address=address)
        .update(address=address)
    )
    if changed:
        replica.address = address
        announce_inventory(reason=f"replica {replica.id} moved", actor=actor)


def process_check(replica: Replica) -> None:
    """Refuse what only makes sense for a process that a node runs."""
    if replica.driver != Driver.PROCESS:
        raise Refused(
            _("Sluice does not run this replica: start and stop it where it runs."),
            code="not_managed",
        )


def replica_follow(replica: Replica, *, reason: str, actor: Actor) -> None:
    """After commit: tell the gateways, the node, and (with a reason) the routes."""
    transaction.on_commit(partial(_admin_axis_push, replica))
    if replica.driver == Driver.PROCESS:
        transaction.on_commit(partial(_node_nudge, replica))
    if reason:
        announce_inventory(reason=reason, actor=actor)


def admin_axis(replica: Replica) -> AdminAxis:
    return AdminAxis(Admin(replica.admin_state), replica.admin_since.timestamp())


def _admin_axis_push(replica: Replica) -> None:
    """The reconcile writes it again, so an absent Redis only delays it."""
    try:
        live.axis_write(replica.id, admin_axis(replica))
    except redis.RedisError:
        return


def _record_drop(replica_id: str) -> None:
    """A record that stays because Redis is absent does no harm: nobody reads it."""
    with suppress(redis.RedisError):
        live.record_delete(replica_id)


def _node_nudge(replica: Replica) -> None:
    """Ask the node to look now; its periodic reconcile does so anyway."""
    # Tasks import services; only this nudge goes the other way.
    from cluster.tasks import node_nudge

    if replica.node is not None:
        node_nudge(replica.node)
