from __future__ import annotations

from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from cluster.errors import Missing
from cluster.selectors.names import name_possible
from routing.models import ApiKey, Team


def team_get(*, slug: str) -> Team:
    team = Team.objects.filter(slug=slug).first() if name_possible(slug) else None
    if team is None:
        raise Missing(_("There is no team %(name)s.") % {"name": slug}, field="team")
    return team


def key_get(*, key_id: str) -> ApiKey:
    """The key of this public id, with its team."""
    keys = ApiKey.objects.select_related("team")
    key = keys.filter(pk=key_id).first() if name_possible(key_id) else None
    if key is None:
        raise Missing(_("There is no key %(name)s.") % {"name": key_id}, field="key")
    return key


def key_list_valid() -> QuerySet[ApiKey]:
    """The keys that a gateway lets in now."""
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    return ApiKey.objects.filter(
        unexpired, revoked_at__isnull=True, team__disabled_at__isnull=True
    )
