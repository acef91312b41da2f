"""Publishing: one numbered snapshot of all routes, first on record, then in Redis."""

from __future__ import annotations

import logging

import redis
from django.db import transaction

from cluster.actor import Actor
from routing.contracts.snapshot import Snapshot, routes_digest, snapshot_encode
from routing.models import Revision
from routing.publish import store
from routing.publish.build import routes_build, timestamp_now
from routing.publish.lock import publish_lock

log = logging.getLogger(__name__)


def snapshot_publish(*, reason: str, actor: Actor) -> Revision:
    """Publish the routes as they are now; nothing happens if nothing changed.

    The lock is taken before the transaction opens: the one who publishes later
    has read later. While Redis is away the revision is on record all the same,
    and the reconcile brings it to Redis afterwards.
    """
    with publish_lock():
        try:
            held = store.held()
        except redis.RedisError as error:
            log.warning("snapshot not published, redis is away: %s", error)
            return _revision_current(reason=reason, actor=actor, held=None)
        revision = _revision_current(reason=reason, actor=actor, held=held)
        if held != (revision.epoch, revision.number):
            try:
                store.put(revision.epoch, revision.number, bytes(revision.body))
            except redis.RedisError as error:
                log.warning("snapshot not published, redis is away: %s", error)
        return revision


@transaction.atomic
def _revision_current(
    *, reason: str, actor: Actor, held: tuple[int, int] | None
) -> Revision:
    """The newest revision, made new if the routes or the history demand it.

    When Redis holds a revision that this database never made, the database was
    restored from an older copy: the next revision opens a new epoch, which
    gateways take for newer whatever its number.
    """
    routes = routes_build()
    digest = routes_digest(routes)
    newest = Revision.objects.first()
    epoch = newest.epoch if newest else 1
    number = newest.number if newest else 0
    if held is not None and held > (epoch, number):
        epoch, number = held[0] + 1, max(number, held[1])
    elif newest is not None and newest.digest == digest:
        return newest
    snapshot = Snapshot(
        schema=1,
        epoch=epoch,
        revision=number + 1,
        created_at=timestamp_now(),
        routes=routes,
    )
    return Revision.objects.create(
        number=snapshot.revision,
        epoch=epoch,
        body=snapshot_encode(snapshot),
        digest=digest,
        reason=reason[:200],
        actor=str(actor),
    )
