from __future__ import annotations

from django.db.models import Count, Q
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


def team_list_counted() -> list[tuple[Team, int]]:
    """Every team, by slug, with the number of its keys that are neither revoked nor
    expired."""
    unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    live = ApiKey.objects.filter(unexpired, revoked_at__isnull=True).order_by()
    counts = dict(live.values_list("team").annotate(Count("pk")))
    return [(team, counts.get(team.pk, 0)) for team in Team.objects.all()]
