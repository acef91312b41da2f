"""The keys' entries in Redis, kept to what the database says.

Every change of a key or of its team moves ``ApiKey.change``; ``sent`` follows when
that change stands in Redis. Whoever writes an entry looks afterwards whether the key
changed meanwhile, and if so writes again: so the last writer always leaves the last
state, however many write at once. A change whose writer died, or found no Redis,
stays unsent, and the reconcile sends it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence

import msgspec
import redis
from django.db import DatabaseError, transaction
from django.db.models import F, QuerySet

from cluster import feed
from cluster.live import redis_client
from routing.contracts.keys import KeyEntry
from routing.models import ApiKey

log = logging.getLogger(__name__)
_NAMES = feed.feed_names(feed.KEYS)
# Keys in one query and one script: a script of this size takes about 2 ms.
BATCH = 500
# Whoever finds a key changed so often in a row leaves it to the reconcile.
_TRIES = 5

# KEYS: complete, restoring. ARGV: the mark of this restore, the run id. Only Redis
# that still has the mark has everything that was written since it was set.
_COMPLETE = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('DEL', KEYS[2])
return 1
"""


def key_entry(key: ApiKey) -> KeyEntry:
    """The key as the gateways read it."""
    return KeyEntry(
        id=key.id,
        secret_sha256=key.secret_sha256,
        team=key.team.slug,
        name=key.name,
        active=key.revoked_at is None and key.team.disabled_at is None,
        models=None if key.model_names is None else tuple(key.model_names),
        scopes=tuple(key.scopes),
        expires_at=key.expires_at.timestamp() if key.expires_at else 0.0,
    )


def keys_push(key_ids: Sequence[str]) -> None:
    """Bring keys to the gateways, as the database has them now.

    It never fails: the change is made already, and what could not be sent stays
    unsent, for the reconcile.
    """
    try:
        for start in range(0, len(key_ids), BATCH):
            _send(key_ids[start : start + BATCH])
    except (redis.RedisError, DatabaseError) as error:
        log.warning("%d keys not pushed: %s", len(key_ids), error)


def keys_push_unsent() -> int:
    """Send every change that never arrived; how many keys that were.

    Raises ``redis.RedisError`` while Redis is away.
    """
    count, last = 0, ""
    unsent = ApiKey.objects.filter(sent__lt=F("change")).order_by("pk")
    while ids := list(unsent.filter(pk__gt=last).values_list("pk", flat=True)[:BATCH]):
        _send(ids)
        count, last = count + len(ids), ids[-1]
    return count


def keys_restore() -> int:
    """Write every key to a Redis that lacks the mark of completeness, or that started
    since the mark was set and may have lost its last writes; then set the mark.

    Returns the number of keys written; 0 when Redis was complete. A second restore
    at the same time does the same work again, and harms nothing. Raises
    ``redis.RedisError`` while Redis is away.
    """
    client = redis_client()
    run_id = str(client.info("server")["run_id"])
    if client.get(_NAMES.complete) == run_id.encode():
        return 0
    client.set(_NAMES.restoring, secrets.token_hex(8), nx=True)
    mark = client.get(_NAMES.restoring) or b""
    count, last = 0, ""
    while rows := list(_keys().filter(pk__gt=last).order_by("pk")[:BATCH]):
        _write(rows)
        if changed := _settle(rows):
            _send(changed)
        count, last = count + len(rows), rows[-1].pk
    complete = client.register_script(_COMPLETE)
    if not complete(keys=[_NAMES.complete, _NAMES.restoring], args=[mark, run_id]):
        log.warning("redis lost its data while %d keys were written to it", count)
    return count


def _send(key_ids: Sequence[str]) -> None:
    """Write the entries of these keys until none of them changed meanwhile."""
    left = list(key_ids)
    for _attempt in range(_TRIES):
        rows = list(_keys().filter(pk__in=left))
        _write(rows)
        left = _settle(rows)
        if not left:
            return


def _keys() -> QuerySet[ApiKey]:
    """Only what entries are made of: there may be 400 000."""
    own = ("secret_sha256", "name", "model_names", "scopes", "expires_at", "revoked_at")
    return ApiKey.objects.select_related("team").only(
        *own, "change", "sent", "team__slug", "team__disabled_at"
    )


def _write(rows: Sequence[ApiKey]) -> None:
    script = redis_client().register_script(feed.ENTRIES_PUT)
    names = [_NAMES.number, _NAMES.changes, _NAMES.notices]
    values: list[str | bytes] = []
    for key in rows:
        values += [key.id, msgspec.json.encode(key_entry(key))]
    script(keys=[*names, *(_NAMES.entry(key.id) for key in rows)], args=values)


def _settle(rows: Sequence[ApiKey]) -> list[str]:
    """Note which changes stand in Redis now; the ids of keys that changed since."""
    read = {key.id: key.change for key in rows}
    now = dict(ApiKey.objects.filter(pk__in=read).values_list("pk", "change"))
    unsent = [key.id for key in rows if key.sent < key.change == now.get(key.id)]
    if unsent:
        with transaction.atomic():
            locked = ApiKey.objects.select_for_update().filter(pk__in=unsent)
            now |= dict(locked.values_list("pk", "change"))
            same = [key_id for key_id in unsent if now.get(key_id) == read[key_id]]
            ApiKey.objects.filter(pk__in=same).update(sent=F("change"))
    return [key_id for key_id, change in now.items() if change != read[key_id]]
