"""API keys: issued once, kept as hashes, each an entry that the gateways read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial

import msgspec
import redis
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from cluster import feed
from cluster.actor import Actor
from cluster.errors import Refused
from cluster.live import redis_client
from cluster.models import Model
from cluster.services.audit import audit_write
from routing.contracts.keys import SCOPES, KeyEntry, key_generate, key_hash
from routing.models import ApiKey, Team

log = logging.getLogger(__name__)
_NAMES = feed.feed_names(feed.KEYS)


@transaction.atomic
def key_issue(
    *,
    team: Team,
    name: str,
    models: Sequence[str] | None = None,
    scopes: Sequence[str] = (),
    expires_at: datetime | None = None,
    actor: Actor,
) -> tuple[ApiKey, str]:
    """A new key of a team, and its text, which nobody can see again.

    ``models`` None allows every model; names of models that do not exist are
    refused, as are unknown scopes and an expiry in the past.
    """
    if not name or len(name) > 100:
        raise Refused(
            _("Give a name of at most 100 characters."), code="required", field="name"
        )
    if models is not None:
        known = set(
            Model.objects.filter(name__in=models).values_list("name", flat=True)
        )
        if unknown := sorted(set(models) - known):
            raise Refused(
                _("There is no model %(name)s.") % {"name": ", ".join(unknown)},
                code="unknown_model",
                field="models",
            )
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise Refused(
            _("There is no scope %(name)s.") % {"name": ", ".join(unknown)},
            code="unknown_scope",
            field="scopes",
        )
    if expires_at is not None and expires_at <= timezone.now():
        raise Refused(
            _("The expiry lies in the past."), code="in_the_past", field="expires_at"
        )
    fresh = key_generate()
    key = ApiKey.objects.create(
        id=fresh.public_id,
        team=team,
        name=name,
        secret_sha256=key_hash(fresh.text),
        last_four=fresh.text[-4:],
        model_names=None if models is None else sorted(set(models)),
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
        created_by=str(actor),
    )
    audit_write(
        actor=actor,
        action="key.issue",
        target=f"{team.slug}/{key.id}",
        after={"name": name, "models": key.model_names, "scopes": key.scopes},
    )
    transaction.on_commit(partial(key_push, key))
    return key, fresh.text


@transaction.atomic
def key_revoke(*, key: ApiKey, actor: Actor) -> ApiKey:
    """Refuse the key everywhere, within 2 s and for ever."""
    changed = ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=True).update(
        revoked_at=timezone.now()
    )
    if changed:
        key.refresh_from_db()
        audit_write(
            actor=actor, action="key.revoke", target=f"{key.team.slug}/{key.id}"
        )
        transaction.on_commit(partial(key_push, key))
    return key


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


def key_push(key: ApiKey) -> None:
    """Bring one key to the gateways. Without Redis, take the mark of completeness
    for lost: the reconcile then writes every key again."""
    try:
        _key_write(redis_client(), key)
    except redis.RedisError as error:
        log.warning("key %s not pushed, redis is away: %s", key.id, error)


def _key_write(client: redis.Redis, key: ApiKey) -> None:
    script = client.register_script(feed.ENTRY_PUT)
    keys = [_NAMES.entry(key.id), _NAMES.number, _NAMES.changes, _NAMES.notices]
    script(keys=keys, args=[key.id, msgspec.json.encode(key_entry(key))])


def keys_restore(*, force: bool = False) -> int:
    """Write every key to a Redis that lacks the mark of completeness, then mark it.

    Returns the number of keys written; 0 when Redis was complete.
    """
    client = redis_client()
    if not force and client.exists(_NAMES.complete):
        return 0
    count = 0
    for key in ApiKey.objects.select_related("team").iterator(chunk_size=1000):
        _key_write(client, key)
        count += 1
    client.set(_NAMES.complete, "1")
    return count
