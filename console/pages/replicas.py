"""Replicas: which is ill, why, since when, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from cluster.actor import Actor
from cluster.errors import Missing, Refused
from cluster.health import Admin, Label
from cluster.models import Driver, Replica, Version
from cluster.selectors import ReplicaView, replica_list, replica_views
from cluster.selectors.audit import audit_list
from cluster.services import (
    replica_admin_set,
    replica_create,
    replica_remove,
    replica_restart,
    replica_running_set,
)
from console import history
from console.pages import actor_of, is_poll, refusal_add
from console.pages.replica_actions import VERBS, action_list, undo_of
from console.status import LABELS, Mark, label_mark, state_mark
from routing.selectors.fleet import fleet_list, model_view

# More rows than this help nobody: the page asks to narrow the list.
ROWS_MOST = 200


@dataclass(frozen=True)
class Row:
    view: ReplicaView
    mark: Mark


@dataclass(frozen=True)
class Filter:
    """One choice of the state filter, with how many replicas it would show."""

    mark: Mark
    count: int
    query: str
    current: bool


@require_safe
def replica_rows(request: HttpRequest) -> HttpResponse:
    """The list, filtered by ``?model=`` and ``?state=``; a poll gets its body only."""
    model, label = request.GET.get("model", ""), request.GET.get("state", "")
    views = replica_views(replica_list(model=model))
    counts = Counter(view.state.label for view in views if view.state)
    shown = [v for v in views if not label or (v.state and v.state.label == label)]
    context = {
        "rows": [Row(view, state_mark(view.state)) for view in shown[:ROWS_MOST]],
        "filters": _filters(counts, model=model, label=label),
        "everything": Filter(
            Mark("off", _("All")), len(views), urlencode({"model": model}), not label
        ),
        "total": len(views),
        "more": len(shown) - ROWS_MOST,
        "chosen_model": model,
        "chosen_label": label,
    }
    if is_poll(request):
        return render(request, "replicas/rows.html", context)
    context["model_names"] = [view.model.name for view in fleet_list()]
    return render(request, "replicas/list.html", context)


def _filters(counts: Counter[Label], *, model: str, label: str) -> list[Filter]:
    """The states that exist, and the chosen one even when it has become empty."""
    return [
        Filter(
            label_mark(one),
            counts[one],
            urlencode({"model": model, "state": one.value}),
            one == label,
        )
        for one in LABELS
        if counts[one] or one == label
    ]


def _replica_get(replica_id: str) -> Replica:
    replica = replica_list(include_removed=True).filter(pk=replica_id).first()
    if replica is None:
        raise Missing(_("There is no replica %(id)s.") % {"id": replica_id})
    return replica


@require_safe
def replica(request: HttpRequest, replica_id: str) -> HttpResponse:
    row = _replica_get(replica_id)
    view = replica_views([row])[0]
    context = {"view": view, "replica": row, "mark": state_mark(view.state)}
    if is_poll(request):
        return render(request, "replicas/state.html", context)
    peers = next(
        part
        for part in model_view(model=row.version.model.name).versions
        if part.version.pk == row.version_id
    )
    context |= {
        "peers": peers,
        "actions": action_list(row, peers),
        "confirm": request.GET.get("confirm", ""),
        "undo": undo_of(row, request.GET.get("undo", "")),
        "changes": history.entries(audit_list(target=row.id)[:10]),
    }
    return render(request, "replicas/replica.html", context)


def _admin(state: Admin) -> Callable[[Replica, Actor], object]:
    return lambda replica, actor: replica_admin_set(
        replica=replica, state=state, actor=actor
    )


_SERVICES: dict[str, Callable[[Replica, Actor], object]] = {
    "enable": _admin(Admin.ENABLED),
    "drain": _admin(Admin.DRAINING),
    "disable": _admin(Admin.DISABLED),
    "start": lambda r, a: replica_running_set(replica=r, running=True, actor=a),
    "stop": lambda r, a: replica_running_set(replica=r, running=False, actor=a),
    "restart": lambda r, a: replica_restart(replica=r, actor=a),
    "remove": lambda r, a: replica_remove(replica=r, actor=a),
}


@require_POST
def replica_act(request: HttpRequest, replica_id: str, verb: str) -> HttpResponse:
    """Do one thing to a replica and show it; what can be undone at once says how."""
    row = _replica_get(replica_id)
    if verb not in VERBS:
        raise Http404(_("A replica cannot do that."))
    before = row.admin_state
    try:
        _SERVICES[verb](row, actor_of(request))
    except Refused as refusal:
        messages.error(request, str(refusal.message))
        return redirect("replica", replica_id=row.id)
    messages.success(request, str(VERBS[verb].done) % {"id": row.id})
    if verb == "remove":
        return redirect("replicas")
    response = redirect("replica", replica_id=row.id)
    if verb in ("enable", "disable", "drain") and before != row.admin_state:
        back = {"enabled": "enable", "draining": "drain", "disabled": "disable"}[before]
        response["Location"] += "?" + urlencode({"undo": back})
    return response


class StaticReplicaForm(forms.Form):
    version = forms.ChoiceField(label=gettext_lazy("Model and version"))
    address = forms.CharField(
        label=gettext_lazy("Address"),
        max_length=300,
        help_text=gettext_lazy(
            "Scheme, host and port, for instance http://10.0.0.5:8000."
        ),
        widget=forms.TextInput(
            attrs={"inputmode": "url", "spellcheck": "false", "autocomplete": "off"}
        ),
    )


def _version_choices() -> list[tuple[str, list[tuple[str, str]]]]:
    """Versions by model, as a select shows them in groups."""
    return [
        (
            view.model.name,
            [
                (str(part.version.pk), f"{view.model.name} {part.version.name}")
                for part in view.versions
            ],
        )
        for view in fleet_list()
        if view.versions
    ]


@require_http_methods(["GET", "HEAD", "POST"])
def replica_new(request: HttpRequest) -> HttpResponse:
    """A static replica; ``?version=`` chooses its version beforehand."""
    choices = _version_choices()
    form = StaticReplicaForm(
        request.POST or None, initial={"version": request.GET.get("version")}
    )
    field = form.fields["version"]
    assert isinstance(field, forms.ChoiceField)
    field.choices = choices
    if request.method == "POST" and form.is_valid():
        try:
            row = replica_create(
                version=Version.objects.select_related("model").get(
                    pk=form.cleaned_data["version"]
                ),
                driver=Driver.STATIC,
                address=form.cleaned_data["address"],
                actor=actor_of(request),
            )
        except Refused as refusal:
            refusal_add(form, refusal)
        else:
            messages.success(request, _("Replica %(id)s was added.") % {"id": row.id})
            return redirect("replica", replica_id=row.id)
    context = {"form": form, "has_versions": bool(choices)}
    status = 422 if form.errors else 200
    return render(request, "replicas/replica_new.html", context, status=status)
