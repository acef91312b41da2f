"""Teams."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from cluster.errors import Refused
from console import history
from console.pages import actor_of, refusal_add
from console.pages.keys import key_rows
from console.pages.once import once_repeated, once_token
from console.pages.undo import undo_offer
from console.status import Mark
from routing.models import Team
from routing.selectors import KeyFind, key_count_live, team_get, team_list_counted
from routing.selectors.usage import usage_lately
from routing.services import team_create, team_enabled_set


class TeamForm(forms.Form):
    slug = forms.CharField(
        label=gettext_lazy("Short name"),
        max_length=63,
        help_text=gettext_lazy("Stands in addresses and reports, for instance search."),
    )
    name = forms.CharField(
        label=gettext_lazy("Full name"), max_length=100, required=False
    )


def team_mark(team: Team) -> Mark:
    if team.disabled_at is not None:
        return Mark("off", _("Disabled"))
    return Mark("ok", _("Enabled"))


@require_safe
def team_list(request: HttpRequest) -> HttpResponse:
    rows = [(row, team_mark(row), live) for row, live in team_list_counted()]
    return render(request, "teams/list.html", {"teams": rows})


@require_safe
def team(request: HttpRequest, slug: str) -> HttpResponse:
    row = team_get(slug=slug)
    context = {
        "team": row,
        "mark": team_mark(row),
        "page": key_rows(request, KeyFind(team=row)),
        "live_keys": key_count_live(team=row),
        "today": usage_lately(team=row.slug, days=1),
        "confirm": request.GET.get("confirm", ""),
        "used": usage_lately(team=row.slug),
        "changes": history.recent(row.slug, "team"),
    }
    return render(request, "teams/team.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def team_new(request: HttpRequest) -> HttpResponse:
    form = TeamForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        if once_repeated(request):
            return redirect("team", slug=form.cleaned_data["slug"])
        try:
            row = team_create(**form.cleaned_data, actor=actor_of(request))
        except Refused as refusal:
            refusal_add(form, refusal)
        else:
            messages.success(request, _("The team exists. Now it needs a key."))
            return redirect("team", slug=row.slug)
    status = 422 if form.errors else 200
    context = {"form": form, "once": once_token(request)}
    return render(request, "teams/team_new.html", context, status=status)


@require_POST
def team_act(request: HttpRequest, slug: str, verb: str) -> HttpResponse:
    if verb not in ("enable", "disable"):
        raise Http404(_("A team cannot do that."))
    row = team_get(slug=slug)
    enabled = verb == "enable"
    before = row.disabled_at
    row = team_enabled_set(team=row, enabled=enabled, actor=actor_of(request))
    done = (
        _("The team is enabled: its keys work again.")
        if enabled
        else _("The team is disabled: none of its keys works.")
    )
    if row.disabled_at != before:
        since = row.disabled_at.isoformat() if row.disabled_at else None
        back = reverse("team", args=[row.slug])
        undo_offer(request, "team", done, back=back, slug=row.slug, disabled_at=since)
    else:
        messages.success(request, done)
    return redirect("team", slug=row.slug)
