"""API keys: issued once, kept as hashes, each an entry that the gateways read."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from cluster.actor import Actor
from cluster.errors import Refused
from cluster.services.audit import audit_write
from routing.contracts.keys import key_generate, key_hash
from routing.models import ApiKey, Team
from routing.services.key_entries import keys_push
from routing.services.key_values import KeyValues, columns, expiry_usual, search_text


@transaction.atomic
def key_issue(
    *, team: Team, actor: Actor, **values: Unpack[KeyValues]
) -> tuple[ApiKey, str]:
    """A new key of a team, and its text, which nobody can see again.

    It needs a name. Left out, models are all of them, and the expiry is in 90 days.
    Names of models that do not exist are refused, as are unknown scopes and an
    expiry in the past.
    """
    fresh = key_generate()
    key = ApiKey(
        id=fresh.public_id,
        team=team,
        secret_sha256=key_hash(fresh.text),
        last_four=fresh.text[-4:],
        expires_at=expiry_usual(),
        created_by=str(actor),
    )
    for name, value in columns({"name": "", **values}, key).items():
        setattr(key, name, value)
    key.search_text = search_text(key, team.slug)
    key.save(force_insert=True)
    audit_write(
        actor=actor, action="key.issue", target=_target(key), after=key_described(key)
    )
    transaction.on_commit(partial(keys_push, [key.id]))
    return key, fresh.text


@transaction.atomic
def key_update(*, key: ApiKey, actor: Actor, **values: Unpack[KeyValues]) -> ApiKey:
    """Change what a key is called and what it may do; its text stays the same.

    What is left out stays. Lock the key first where a change of others must not be
    lost. A revoked key is refused: it can never be used again.
    """
    if key.revoked_at is not None:
        raise Refused(_("A revoked key cannot be changed."), code="revoked")
    before = key_described(key)
    for name, value in columns(values, key).items():
        setattr(key, name, value)
    after = key_described(key)
    changed = {name for name in after if after[name] != before[name]}
    if not changed:
        return key
    ApiKey.objects.filter(pk=key.pk).update(
        name=key.name,
        owner=key.owner,
        tags=key.tags,
        model_names=key.model_names,
        scopes=key.scopes,
        expires_at=key.expires_at,
        search_text=search_text(key, key.team.slug),
        change=F("change") + 1,
    )
    audit_write(
        actor=actor,
        action="key.update",
        target=_target(key),
        before={name: before[name] for name in sorted(changed)},
        after={name: after[name] for name in sorted(changed)},
    )
    transaction.on_commit(partial(keys_push, [key.id]))
    return key


@transaction.atomic
def key_revoke(*, key: ApiKey, actor: Actor) -> ApiKey:
    """Refuse the key everywhere, within 2 s and for ever."""
    changed = ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=True).update(
        revoked_at=timezone.now(), change=F("change") + 1
    )
    if changed:
        key.refresh_from_db()
        audit_write(
            actor=actor,
            action="key.revoke",
            target=_target(key),
            before={"revoked": False},
            after={"revoked": True},
        )
        transaction.on_commit(partial(keys_push, [key.id]))
    return key


def _target(key: ApiKey) -> str:
    return f"{key.team.slug}/{key.id}"


def key_described(key: ApiKey) -> dict[str, Any]:
    """What a change may touch, as plain values: for the audit record and for whoever
    wants to bring it back."""
    return {
        "name": key.name,
        "owner": key.owner,
        "tags": key.tags,
        "models": key.model_names,
        "scopes": key.scopes,
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
    }
