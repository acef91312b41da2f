from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils.translation import gettext_lazy

from cluster.actor import Actor
from cluster.errors import Refused
from cluster.models import Node
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
