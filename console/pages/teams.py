"""Teams and their keys."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from cluster.errors import Refused
from cluster.models import Model
from console.pages import actor_of, refusal_add
from console.pages.once import once_token, once_use
from console.status import Mark
from routing.contracts.keys import SCOPE_CHOOSE_VERSION
from routing.models import ApiKey, Team
from routing.selectors import key_get, team_get
from routing.selectors.usage import usage_lately
from routing.services import key_issue, team_create, team_enabled_set
from routing.services import key_revoke as revoke

_SOON = timedelta(days=14)


class TeamForm(forms.Form):
    slug = forms.CharField(
        label=gettext_lazy("Short name"),
        max_length=63,
        help_text=gettext_lazy("Stands in addresses and reports, for instance search."),
    )
    name = forms.CharField(
        label=gettext_lazy("Full name"), max_length=100, required=False
    )


class KeyForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("Who or what uses it, for instance nightly-report."),
    )
    models = forms.MultipleChoiceField(
        label=gettext_lazy("Models"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("With none chosen the key may call every model."),
    )
    expires_in_days = forms.TypedChoiceField(
        label=gettext_lazy("Expires"),
        coerce=int,
        initial=90,
        choices=[
            (30, gettext_lazy("in 30 days")),
            (90, gettext_lazy("in 90 days")),
            (365, gettext_lazy("in a year")),
            (0, gettext_lazy("never")),
        ],
    )
    choose_version = forms.BooleanField(
        label=gettext_lazy("May choose the version of a model itself"),
        required=False,
        help_text=gettext_lazy(
            "With the header x-sluice-version, whatever the weights are."
        ),
    )

    def service_values(self) -> dict[str, Any]:
        """The cleaned values as ``key_issue`` takes them."""
        values = self.cleaned_data
        days = values["expires_in_days"]
        return {
            "name": values["name"],
            "models": values["models"] or None,
            "scopes": [SCOPE_CHOOSE_VERSION] if values["choose_version"] else [],
            "expires_at": timezone.now() + timedelta(days=days) if days else None,
        }


def key_mark(key: ApiKey, now: datetime) -> Mark:
    """Whether the gateways accept a key, and how long still."""
    if key.revoked_at is not None:
        return Mark("off", _("Revoked"))
    if key.expires_at is not None and key.expires_at <= now:
        return Mark("off", _("Expired"))
    if key.team.disabled_at is not None:
        return Mark("hold", _("Team disabled"))
    if key.expires_at is not None and key.expires_at <= now + _SOON:
        return Mark("warn", _("Expires soon"))
    return Mark("ok", _("Active"))


def team_mark(team: Team) -> Mark:
    if team.disabled_at is not None:
        return Mark("off", _("Disabled"))
    return Mark("ok", _("Enabled"))


@require_safe
def team_list(request: HttpRequest) -> HttpResponse:
    live = Q(keys__revoked_at__isnull=True) & (
        Q(keys__expires_at__isnull=True) | Q(keys__expires_at__gt=timezone.now())
    )
    teams = Team.objects.annotate(live_keys=Count("keys", filter=live))
    context = {"teams": [(team, team_mark(team)) for team in teams]}
    return render(request, "teams/list.html", context)


@require_safe
def team(request: HttpRequest, slug: str) -> HttpResponse:
    row = team_get(slug=slug)
    now = timezone.now()
    keys = row.keys.select_related("team").order_by("-created_at", "id")[:200]
    context = {
        "team": row,
        "mark": team_mark(row),
        "keys": [(key, key_mark(key, now)) for key in keys],
        "confirm": request.GET.get("confirm", ""),
        "used": usage_lately(team=row.slug),
    }
    return render(request, "teams/team.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def team_new(request: HttpRequest) -> HttpResponse:
    form = TeamForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            row = team_create(**form.cleaned_data, actor=actor_of(request))
        except Refused as refusal:
            refusal_add(form, refusal)
        else:
            messages.success(request, _("The team exists. Now it needs a key."))
            return redirect("team", slug=row.slug)
    status = 422 if form.errors else 200
    return render(request, "teams/team_new.html", {"form": form}, status=status)


@require_POST
def team_act(request: HttpRequest, slug: str, verb: str) -> HttpResponse:
    if verb not in ("enable", "disable"):
        raise Http404(_("A team cannot do that."))
    row = team_get(slug=slug)
    team_enabled_set(team=row, enabled=verb == "enable", actor=actor_of(request))
    done = (
        _("The team is enabled: its keys work again.")
        if verb == "enable"
        else _("The team is disabled: none of its keys works.")
    )
    messages.success(request, done)
    return redirect("team", slug=row.slug)


@require_http_methods(["GET", "HEAD", "POST"])
def key_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Issue a key. The answer to the POST is the only page that ever shows it."""
    row = team_get(slug=slug)
    form = KeyForm(request.POST or None)
    field = form.fields["models"]
    assert isinstance(field, forms.MultipleChoiceField)
    field.choices = [
        (name, name) for name in Model.objects.values_list("name", flat=True)
    ]
    if request.method == "POST" and form.is_valid():
        if not once_use(request):
            messages.error(
                request, _("That form was sent before. No second key was issued.")
            )
            return redirect("team", slug=row.slug)
        try:
            key, text = key_issue(
                team=row, **form.service_values(), actor=actor_of(request)
            )
        except Refused as refusal:
            refusal_add(form, refusal)
        else:
            context = {"team": row, "key": key, "secret": text}
            return render(request, "teams/key_issued.html", context)
    context = {"form": form, "team": row, "once": once_token(request)}
    status = 422 if form.errors else 200
    return render(request, "teams/key_new.html", context, status=status)


@require_POST
def key_revoke(request: HttpRequest, key_id: str) -> HttpResponse:
    key = key_get(key_id=key_id)
    revoke(key=key, actor=actor_of(request))
    messages.success(
        request, _("The key %(name)s is refused from now on.") % {"name": key.name}
    )
    return redirect("team", slug=key.team.slug)
