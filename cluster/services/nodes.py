from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from cluster import live, presence
from cluster.actor import Actor
from cluster.errors import Refused
from cluster.health.node import SILENT_S, NodeFacts, NodeState, node_state
from cluster.health.record import NodeAxis, NodeReach
from cluster.models import Driver, Node, Replica
from cluster.services.audit import audit_write
from cluster.services.models import name_check


@transaction.atomic
def node_register(*, name: str, host: str = "127.0.0.1", actor: Actor) -> Node:
    """The node of this name, made if it is new; a changed host is taken over."""
    name_check(name)
    node = Node.objects.filter(name=name).first()
    if node is None:
        try:
            with transaction.atomic():
                node = Node.objects.create(name=name, host=host)
        except IntegrityError as error:
            raise Refused(
                gettext_lazy("A node of this name exists."),
                code="duplicate",
                field="name",
            ) from error
        audit_write(
            actor=actor, action="node.create", target=name, after={"host": host}
        )
    elif node.host != host:
        audit_write(
            actor=actor,
            action="node.update",
            target=name,
            before={"host": node.host},
            after={"host": host},
        )
        node.host = host
        node.save(update_fields=["host"])
    return node


def node_claim(*, name: str, holder: str, facts: NodeFacts, replace: bool) -> None:
    """Take the name for this installation of the node, or say who has it.

    One that is heard of is never replaced, a silent one only on demand. Raises
    ``redis.RedisError``.
    """
    name_check(name)
    held = presence.presence_beat(name, holder=holder, facts=facts, replace=replace)
    if held is None:
        return
    values = {
        "name": name,
        "host": held.facts.host if held.facts else "?",
        "hostname": held.facts.hostname if held.facts else "?",
        "age": round(held.silence_s),
        "limit": round(SILENT_S),
    }
    if held.silence_s < SILENT_S:
        text = _(
            "The node %(name)s is another machine, %(hostname)s at %(host)s, whose "
            "last heartbeat is %(age)d s old: choose another name, or replace it with "
            "--replace once it has been silent for %(limit)d s."
        )
    else:
        text = _(
            "The node %(name)s is another machine, %(hostname)s at %(host)s, silent "
            "for %(age)d s: use --replace if this machine takes its place."
        )
    raise Refused(text % values, code="node_held", field="name")


def nodes_watch() -> dict[str, NodeState]:
    """Write down for every process replica whether its node is heard of.

    Nothing is restarted for it: whether such a replica serves, the data path sees.
    Raises ``redis.RedisError``.
    """
    names = list(Node.objects.values_list("name", flat=True))
    now, heard = presence.presences_read(names)
    if presence.redis_uptime_s() < SILENT_S:
        # Nobody could be heard while Redis was away: that is no silence of a node.
        return {}
    ats = {name: known.at if known else None for name, known in heard.items()}
    states = {name: node_state(at, now) for name, at in ats.items()}
    replicas = Replica.objects.filter(driver=Driver.PROCESS, removed_at__isnull=True)
    pairs = list(replicas.values_list("pk", "node__name"))
    before = live.node_axes_read(pk for pk, _name in pairs)
    for pk, name in pairs:
        if (at := ats.get(name)) is not None:
            _axis_follow(pk, before[pk], NodeReach(states[name]), at, now)
    return states


def _axis_follow(
    replica_id: str, before: NodeAxis | None, state: NodeReach, at: float, now: float
) -> None:
    """An axis that stays as it is keeps its ``since``."""
    if before is not None and before.state is state:
        return
    since = at if state is NodeReach.UNREACHABLE else now
    live.axis_write(replica_id, NodeAxis(state, round(since, 3)))
