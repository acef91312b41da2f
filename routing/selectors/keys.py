"""Keys, found and listed: also when there are 400 000 of them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from django.db.models import DateTimeField, Q, QuerySet, Value
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext as _

from cluster.errors import Missing
from cluster.selectors.names import name_possible
from routing.contracts.keys import key_public_id
from routing.models import ApiKey, Team

EXPIRES_SOON = timedelta(days=14)
QUERY_LENGTH = 200
_WORDS_MOST = 5
_TEAMS_MOST = 200
# Clocks differ: a key that expired a day ago is refused everywhere.
_CLOCKS_DIFFER = timedelta(days=1)
_NEVER = datetime(9999, 12, 1, tzinfo=UTC)


class KeyState(StrEnum):
    """Which keys a list shows; a key may be in several of them."""

    ACTIVE = "active"
    EXPIRING = "expiring"
    EXPIRED = "expired"
    REVOKED = "revoked"
    UNUSED = "unused"


class KeyFind(NamedTuple):
    """``query`` holds words that must all occur; '' and None mean any key."""

    query: str = ""
    state: KeyState | None = None
    team: Team | None = None


class Position(NamedTuple):
    """A key's place in a list."""

    moment: datetime
    key_id: str


class KeyPage(NamedTuple):
    """``following`` is where the next page begins after, None on the last."""

    rows: list[ApiKey]
    following: Position | None


def key_get(*, key_id: str, lock: bool = False) -> ApiKey:
    """The key of this public id, with its team; locked for the current transaction."""
    keys = ApiKey.objects.select_related("team")
    if lock:
        keys = keys.select_for_update(of=("self",))
    key = keys.filter(pk=key_id).first() if name_possible(key_id) else None
    if key is None:
        raise Missing(_("There is no key %(name)s.") % {"name": key_id}, field="key")
    return key


def key_names(*, ids: Collection[str]) -> dict[str, str]:
    """The names of those keys that there still are, by their public ids."""
    if not ids:
        return {}
    return dict(ApiKey.objects.filter(pk__in=ids).values_list("pk", "name"))


def key_list_valid() -> QuerySet[ApiKey]:
    """The keys that a gateway lets in now."""
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    return ApiKey.objects.filter(
        unexpired, revoked_at__isnull=True, team__disabled_at__isnull=True
    )


def key_list_usable(*, team: Team) -> QuerySet[ApiKey]:
    """The keys of a team that any gateway could let in if the team is enabled."""
    soonest = timezone.now() - _CLOCKS_DIFFER
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=soonest)
    return ApiKey.objects.filter(unexpired, team=team, revoked_at__isnull=True)


def key_count_live(*, team: Team) -> int:
    """How many keys of a team work while it is enabled."""
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    return ApiKey.objects.filter(unexpired, team=team, revoked_at__isnull=True).count()


def key_page(*, find: KeyFind, after: Position | None = None, limit: int) -> KeyPage:
    """One page of the keys that fit, newest first; those that expire soon in the
    order in which they do.

    The ids are found first: that needs an index only (``ListIndex``), so that
    finding nothing among 400 000 keys takes a fraction of a second too.
    """
    soon = find.state is KeyState.EXPIRING
    order = ("ends_at", "id") if soon else ("-created_at", "id")
    found = _found(find)
    if after is not None:
        found = found.filter(_beyond(after, soon=soon))
    ids = list(found.order_by(*order).values_list("id", flat=True)[: limit + 1])
    rows = ApiKey.objects.select_related("team").in_bulk(ids[:limit])
    page = [rows[key_id] for key_id in ids[:limit]]
    if len(ids) <= limit:
        return KeyPage(page, None)
    last = page[-1]
    moment = (last.expires_at or _NEVER) if soon else last.created_at
    return KeyPage(page, Position(moment, last.id))


def _found(find: KeyFind) -> QuerySet[ApiKey]:
    # Compared as an expression, an expiry is no range of an index: the order is what
    # an index is wanted for.
    ends_at = Coalesce("expires_at", Value(_NEVER), output_field=DateTimeField())
    keys = ApiKey.objects.annotate(ends_at=ends_at)
    if find.team is not None:
        keys = keys.filter(team=find.team)
    if find.state is not None:
        keys = keys.filter(_in_state(find.state, timezone.now()))
    return _searched(keys, find.query)


def _in_state(state: KeyState, now: datetime) -> Q:
    live = Q(ends_at__gt=now, revoked_at__isnull=True)
    match state:
        case KeyState.ACTIVE:
            disabled = Team.objects.filter(disabled_at__isnull=False)
            return live & ~Q(team__in=disabled)
        case KeyState.EXPIRING:
            return live & Q(ends_at__lte=now + EXPIRES_SOON)
        case KeyState.EXPIRED:
            return Q(ends_at__lte=now, revoked_at__isnull=True)
        case KeyState.REVOKED:
            return Q(revoked_at__isnull=False)
        case KeyState.UNUSED:
            return Q(last_used_at__isnull=True)


def _searched(keys: QuerySet[ApiKey], query: str) -> QuerySet[ApiKey]:
    """A whole key is found by its public part. A word may be any piece of the key as
    lists show it, its name, owner, a ``#tag``, or its team's names."""
    if public_id := key_public_id(query.strip()):
        return keys.filter(pk=public_id)
    if "\0" in query:
        return keys.none()
    for word in query.casefold().split()[:_WORDS_MOST]:
        teams = Team.objects.filter(name__icontains=word).values_list("pk", flat=True)
        named = list(teams[:_TEAMS_MOST])
        fits = Q(search_text__contains=word)
        keys = keys.filter(fits | Q(team__in=named) if named else fits)
    return keys


def _beyond(after: Position, *, soon: bool) -> Q:
    """The bound on the moment alone is what an index can begin at."""
    moment, key_id = after
    if soon:
        return Q(ends_at__gt=moment) | Q(ends_at=moment, id__gt=key_id)
    return Q(created_at__lte=moment) & (Q(created_at__lt=moment) | Q(id__gt=key_id))
