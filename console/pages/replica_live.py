"""The parts of a replica's page that live: numbers, charts, requests, log, command."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import redis
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from cluster.engines import ArtifactMissing, LaunchRefused
from cluster.models import Driver, Replica, Sample
from cluster.selectors import engine_views
from cluster.selectors.replicas import replica_any, replica_timeline
from cluster.services import replica_log
from cluster.services.launch import launch_command
from console.accounts.grants import Scope, grant_of
from console.live.readings import Reading, reading_read
from console.pages.replica_actions import action_list, peer_facts
from console.status import Mark, transition_mark
from routing.selectors.fleet import VersionView, model_view

CHART_SPAN = timedelta(minutes=30)


class Chart(NamedTuple):
    """One line. ``name`` is the figure that goes on live; ``column`` its history,
    ``factor`` from the history's unit to the chart's."""

    name: str
    title: str
    unit: str
    column: str
    digits: int = 0
    factor: float = 1.0
    limit: float | None = None


def charts() -> list[Chart]:
    """The charts of a replica, in the order of the page."""
    return [
        Chart("running", _("Running in the engine"), "", "running_mean", 1),
        Chart("waiting", _("Waiting in the engine"), "", "waiting_mean", 1),
        Chart("tokens_per_s", _("Tokens"), _("per second"), "tokens_per_s_mean", 1),
        Chart("ttft_ms", _("Time to first token"), "ms", "ttft_ms_mean"),
        Chart("kv", _("KV cache"), "%", "kv_mean", 0, 100.0, 90.0),
    ]


def chart_history(replica: Replica) -> dict[str, list[list[float | None]]]:
    """Per chart the pairs of Unix milliseconds and value of the last half hour."""
    rows = list(
        Sample.objects.filter(
            replica=replica, minute__gte=timezone.now() - CHART_SPAN
        ).order_by("minute")
    )
    return {chart.name: [_point(chart, row) for row in rows] for chart in charts()}


def _point(chart: Chart, row: Sample) -> list[float | None]:
    value = getattr(row, chart.column)
    at_ms = row.minute.timestamp() * 1000
    return [at_ms, None if value is None else round(value * chart.factor, 3)]


def command_of(replica: Replica) -> dict[str, str]:
    """The launch command as a shell would take it, or why there is none."""
    if replica.driver != Driver.PROCESS:
        return {"command": "", "problem": ""}
    try:
        return {"command": launch_command(replica).text, "problem": ""}
    except (LaunchRefused, ArtifactMissing) as refused:
        return {"command": "", "problem": str(refused)}


def log_of(replica: Replica) -> list[str] | None:
    """The last lines; None while its node has not answered, or Redis is away."""
    try:
        return replica_log(replica=replica)
    except redis.RedisError:
        return None


@require_safe
def log(request: HttpRequest, replica_id: str) -> HttpResponse:
    """The last lines as plain text; 202 while the node is being asked for them."""
    lines = log_of(replica_any(replica_id=replica_id))
    body = "" if lines is None else "".join(f"{line}\n" for line in lines)
    response = HttpResponse(
        body,
        content_type="text/plain; charset=utf-8",
        status=202 if lines is None else 200,
    )
    if "download" in request.GET:
        name = f'attachment; filename="{replica_id}.log"'
        response["Content-Disposition"] = name
    return response


class Entry(NamedTuple):
    """A state that the replica was in, from ``at`` on."""

    mark: Mark
    at: datetime
    detail: str
    said_by: str


def speaker_text(said_by: str) -> str:
    """Which gateway decided upon a state; of the parts of the control plane the
    sentence of the state says enough."""
    if said_by in ("", "admin", "node", "prober", "scheduler"):
        return ""
    return _("Decided by the gateway %(id)s.") % {"id": said_by}


def timeline(replica: Replica) -> list[Entry]:
    """The last states, the newest first; codes of another release are shown as such."""
    return [
        Entry(
            transition_mark(row.label, row.cause),
            row.at,
            row.detail,
            speaker_text(row.said_by),
        )
        for row in replica_timeline(replica=replica, limit=20)
    ]


@require_safe
def timeline_region(request: HttpRequest, replica_id: str) -> HttpResponse:
    """The timeline alone, as its page asks for it again."""
    row = replica_any(replica_id=replica_id)
    context = {"replica": row, "timeline": timeline(row)}
    return render(request, "replicas/timeline.html", context)


@require_safe
def engine_region(request: HttpRequest, replica_id: str) -> HttpResponse:
    """What its engine says of itself, as its page asks for it again."""
    row = replica_any(replica_id=replica_id)
    context = {"replica": row, "engine": engine_views([row])[row.id]}
    return render(request, "replicas/engine.html", context)


def _peers(replica: Replica) -> VersionView:
    """All replicas of its version, and the share that the version has."""
    versions = model_view(model=replica.version.model.name).versions
    return next(one for one in versions if one.version.pk == replica.version_id)


def actions_context(
    request: HttpRequest, replica: Replica, reading: Reading
) -> dict[str, Any]:
    """What can be done to it, and what that would mean for the others."""
    peers = _peers(replica)
    denied = grant_of(request).refusal(Scope.FLEET)
    return {
        "actions": action_list(replica, peers, reading, denied),
        "peer_facts": peer_facts(replica, peers),
    }


@require_safe
def now(request: HttpRequest, replica_id: str) -> HttpResponse:
    """Of each verb whether it can be done now, and the facts that go with it: the
    page's buttons stay, what stands beside them follows. The numbers come along, for
    a page that has no websocket."""
    row = replica_any(replica_id=replica_id)
    reading = reading_read(row.id)
    actions = actions_context(request, row, reading)
    verbs = {
        action.verb: {
            "effect": action.effect,
            "blocked": action.blocked,
            "facts": action.facts,
        }
        for action in actions["actions"]
    }
    return JsonResponse(
        {
            "facts": actions["peer_facts"],
            "verbs": verbs,
            "values": reading.values,
            "requests": reading.rows,
        }
    )


def live_context(replica: Replica) -> dict[str, Any]:
    """What the live parts need beside the figures."""
    lines = log_of(replica) if replica.driver == Driver.PROCESS else []
    return {
        "charts": charts(),
        "history": chart_history(replica),
        "launch": command_of(replica),
        "log_lines": lines,
        "timeline": timeline(replica),
    }
