from __future__ import annotations

from functools import partial

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from cluster.actor import Actor
from cluster.errors import Refused
from cluster.services.audit import audit_write
from cluster.services.models import name_check
from routing.models import Team
from routing.selectors.keys import key_list_usable
from routing.services.key_entries import keys_push


@transaction.atomic
def team_create(*, slug: str, name: str = "", actor: Actor) -> Team:
    name_check(slug, field="slug")
    if len(slug) > 63:
        raise Refused(_("At most 63 characters."), code="too_long", field="slug")
    if len(name) > 100:
        raise Refused(_("At most 100 characters."), code="too_long", field="name")
    try:
        with transaction.atomic():
            team = Team.objects.create(slug=slug, name=name or slug)
    except IntegrityError as error:
        raise Refused(
            gettext_lazy("A team of this name exists."), code="duplicate", field="slug"
        ) from error
    audit_write(
        actor=actor, action="team.create", target=slug, after={"name": team.name}
    )
    return team


@transaction.atomic
def team_enabled_set(*, team: Team, enabled: bool, actor: Actor) -> Team:
    """Disable a team and with it every key it has, or let them work again."""
    changed = Team.objects.filter(pk=team.pk, disabled_at__isnull=not enabled).update(
        disabled_at=None if enabled else timezone.now()
    )
    if changed:
        team.refresh_from_db()
        verb = "enable" if enabled else "disable"
        audit_write(
            actor=actor,
            action=f"team.{verb}",
            target=team.slug,
            before={"enabled": not enabled},
            after={"enabled": enabled},
        )
        usable = key_list_usable(team=team)
        usable.update(change=F("change") + 1)
        ids = list(usable.order_by().values_list("pk", flat=True))
        transaction.on_commit(partial(keys_push, ids))
    return team
