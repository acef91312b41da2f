"""Replicas: which is ill, why, since when, and what to do about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlencode

import redis
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
from cluster.health import Admin, Label
from cluster.models import AuditRecord, Driver, Model, Replica, Version
from cluster.selectors import ReplicaView, engine_views, replica_list, replica_views
from cluster.selectors.audit import audit_list
from cluster.selectors.replicas import replica_any
from cluster.services import (
    replica_admin_set,
    replica_create,
    replica_drain,
    replica_remove,
    replica_restart,
    replica_running_set,
)
from cluster.services.running import DRAIN_DEADLINE_S
from console import history
from console.live.readings import Values, reading_read, readings_read
from console.pages import actor_of, is_poll, refusal_add
from console.pages.once import once_repeated, once_token
from console.pages.replica_actions import VERBS, cut_done
from console.pages.replica_live import actions_context, live_context
from console.pages.undo import undo_offer
from console.status import LABELS, Mark, label_mark, removed_mark, state_mark
from routing.selectors.fleet import fleet_list

# More rows than this help nobody: the page asks to narrow the list.
ROWS_MOST = 200


@dataclass(frozen=True)
class Row:
    view: ReplicaView
    mark: Mark
    values: Values


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
        "rows": _rows(shown[:ROWS_MOST]),
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
    context["model_names"] = Model.objects.order_by("name").values_list(
        "name", flat=True
    )
    return render(request, "replicas/list.html", context)


def _rows(views: list[ReplicaView]) -> list[Row]:
    try:
        readings = readings_read([view.replica.id for view in views])
    except redis.RedisError:
        readings = {}
    return [
        Row(
            view,
            state_mark(view.state),
            readings[view.replica.id].values if view.replica.id in readings else {},
        )
        for view in views
    ]


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


@require_safe
def replica(request: HttpRequest, replica_id: str) -> HttpResponse:
    row = replica_any(replica_id=replica_id)
    view = replica_views([row])[0]
    reading = reading_read(row.id)
    context = {
        "view": view,
        "replica": row,
        "mark": removed_mark() if row.removed_at else state_mark(view.state),
        "load": reading.load,
        "engine": engine_views([row])[row.id],
        "removed_by": _removal(row),
    }
    if is_poll(request):
        return render(request, "replicas/state.html", context)
    context |= {
        "values": reading.values,
        "requests": reading.requests,
        "rows": reading.rows,
        "confirm": request.GET.get("confirm", ""),
        "changes": history.recent(row.id, "replica"),
        **actions_context(request, row, reading),
        **live_context(row),
    }
    return render(request, "replicas/replica.html", context)


def _removal(replica: Replica) -> AuditRecord | None:
    """Who took it out; None while it is there."""
    if replica.removed_at is None:
        return None
    return audit_list(target=replica.id).filter(action="replica.remove").first()


_ADMIN = {"enable": Admin.ENABLED, "disable": Admin.DISABLED}


def _act(request: HttpRequest, replica: Replica, verb: str) -> int | None:
    """Do it; how many requests that cut off, None when nobody knows."""
    actor = actor_of(request)
    if verb in _ADMIN:
        replica_admin_set(replica=replica, state=_ADMIN[verb], actor=actor)
    elif verb == "drain":
        then_stop = "then_stop" in request.POST
        deadline_s = _deadline_s(request.POST.get("deadline_s", ""))
        replica_drain(
            replica=replica, then_stop=then_stop, deadline_s=deadline_s, actor=actor
        )
    elif verb == "restart":
        return replica_restart(replica=replica, actor=actor).cut
    elif verb == "remove":
        return replica_remove(replica=replica, actor=actor)
    else:
        done = replica_running_set(
            replica=replica,
            running=verb == "start",
            force=verb == "stop-now",
            actor=actor,
        )
        return done.cut
    return 0


def _deadline_s(text: str) -> float:
    if not text:
        return DRAIN_DEADLINE_S
    # Out of every range: the service says what is wrong with it.
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0.0


@require_POST
def replica_act(request: HttpRequest, replica_id: str, verb: str) -> HttpResponse:
    """Do one thing to a replica and show it; what can be undone at once says how."""
    row = replica_any(replica_id=replica_id)
    if verb not in VERBS:
        raise Http404(_("A replica cannot do that."))
    if row.removed_at is not None:
        messages.error(request, _("The replica was removed."))
        return redirect("replica", replica_id=row.id)
    before = row.admin_state
    try:
        cut = _act(request, row, verb)
    except Refused as refusal:
        messages.error(request, str(refusal.message))
        return redirect("replica", replica_id=row.id)
    done = str(VERBS[verb].done) % {"id": row.id}
    text = f"{done} {cut_done(cut)}".strip()
    if verb in ("enable", "disable", "drain") and before != row.admin_state:
        undo_offer(
            request,
            "replica",
            text,
            back=reverse("replica", args=[row.id]),
            id=row.id,
            now=row.admin_state,
            since=row.admin_since.isoformat(),
            before=before,
        )
    else:
        messages.success(request, text)
    if verb == "remove":
        return redirect("replicas")
    return redirect("replica", replica_id=row.id)


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
        if once_repeated(request):
            return redirect("replicas")
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
    context = {
        "form": form,
        "has_versions": bool(choices),
        "once": once_token(request),
    }
    status = 422 if form.errors else 200
    return render(request, "replicas/replica_new.html", context, status=status)
