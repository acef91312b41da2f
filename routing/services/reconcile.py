from __future__ import annotations

from cluster import live
from cluster.actor import Actor
from cluster.selectors import replica_list
from cluster.services.replicas import admin_axis
from routing.services.inventory import routes_align
from routing.services.key_entries import keys_push_unsent, keys_restore
from routing.services.publish import snapshot_publish


def routing_reconcile(*, actor: Actor) -> None:
    """Bring Redis to what the database says; normally everything is so already.

    Raises ``redis.RedisError`` while Redis is away; the next turn tries again.
    """
    routes_align(actor=actor)
    snapshot_publish(reason="reconcile", actor=actor)
    keys_restore()
    keys_push_unsent()
    for replica in replica_list():
        live.axis_write(replica.id, admin_axis(replica))
