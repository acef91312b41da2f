"""Nodes: which machines run replicas, whether they are heard of, how full they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from cluster.health.node import Disk, NodeFacts, NodeState
from cluster.selectors import (
    NodeView,
    node_get,
    node_list,
    node_views,
    replica_list,
    replica_views,
)
from console import history
from console.pages import is_poll
from console.status import Mark, state_mark

_MIB_PER_GIB = 1024


@dataclass(frozen=True)
class Row:
    view: NodeView
    mark: Mark
    notes: list[str]
    figures: list[tuple[str, str]]


def node_mark(view: NodeView) -> Mark:
    """Whether it is heard of; silence says nothing of its replicas."""
    if view.state is None:
        words = _("Redis does not answer, and heartbeats lie there.")
        return Mark("stale", _("Unknown"), words)
    if view.state is NodeState.NEVER_SEEN:
        return Mark("idle", _("Never seen"), _("No worker has joined under its name."))
    if view.state is NodeState.UNREACHABLE:
        return Mark(
            "err",
            _("Unreachable"),
            _("Nothing was restarted: its replicas serve as far as requests succeed."),
        )
    return Mark("ok", _("Reachable"), _("Its worker says every 10 s that it lives."))


def node_notes(facts: NodeFacts | None, rival: NodeFacts | None) -> list[str]:
    """What a person should look after, as whole sentences."""
    found = []
    if rival is not None:
        text = _(
            "Another machine, %(hostname)s at %(host)s, was refused this name within "
            "the last ten minutes: each node needs a name of its own."
        )
        found.append(text % {"hostname": rival.hostname, "host": rival.host})
    if facts is None:
        return found
    if facts.clock_is_off:
        ahead = facts.clock_offset_s > 0
        text = _("Its clock is %(n)d s ahead of Redis; nothing depends on it.")
        if not ahead:
            text = _("Its clock is %(n)d s behind Redis; nothing depends on it.")
        found.append(text % {"n": round(abs(facts.clock_offset_s))})
    if facts.disk is Disk.FULL:
        found.append(_("The disk of its data directory is full."))
    elif facts.disk is Disk.SCARCE:
        found.append(_("The disk of its data directory is nearly full."))
    return found


def node_figures(facts: NodeFacts | None) -> list[tuple[str, str]]:
    """Name and value of what it said last."""
    if facts is None:
        return []
    used = facts.memory_total_mb - facts.memory_available_mb
    return [
        (
            _("CPU load"),
            _("%(load).2f of %(n)d CPUs")
            % {"load": facts.load_1m, "n": facts.cpu_count},
        ),
        (_("Memory used"), _gib(used, facts.memory_total_mb)),
        (
            _("Disk used"),
            _gib(facts.disk_total_mb - facts.disk_free_mb, facts.disk_total_mb),
        ),
        (_("GPUs"), gpus_text(facts)),
    ]


def _gib(used_mb: float, total_mb: float) -> str:
    return _("%(used).1f of %(total).1f GiB") % {
        "used": used_mb / _MIB_PER_GIB,
        "total": total_mb / _MIB_PER_GIB,
    }


def gpus_text(facts: NodeFacts) -> str:
    """How many cards, or why none is shown."""
    if facts.gpus:
        count = len(facts.gpus)
        return ngettext("%(n)d card", "%(n)d cards", count) % {"n": count}
    return {
        "no_driver": _("none: no NVIDIA driver answers"),
        "no_card": _("none"),
        "unreadable": _("unknown: the driver cannot be read"),
    }.get(facts.gpus_absent, _("none"))


def _row(view: NodeView) -> Row:
    notes = node_notes(view.facts, view.rival)
    return Row(view, node_mark(view), notes, node_figures(view.facts))


@require_safe
def nodes(request: HttpRequest) -> HttpResponse:
    context = {
        "rows": [_row(view) for view in node_views(node_list())],
        "join_command": join_command(),
    }
    template = "nodes/rows.html" if is_poll(request) else "nodes/list.html"
    return render(request, template, context)


def join_command() -> str:
    """What to run on the new machine; secrets are named, never shown."""
    return (
        'DATABASE_URL="…" REDIS_URL="…" SLUICE_SECRET_KEY_FILE=secret-key \\\n'
        "  python manage.py node join --name gpu-a --host 10.0.0.7"
    )


@require_safe
def node(request: HttpRequest, name: str) -> HttpResponse:
    row = node_get(name=name)
    replicas = replica_views(replica_list().filter(node=row))
    context: dict[str, Any] = {
        "node": row,
        "row": _row(node_views([row])[0]),
        "replicas": [(view, state_mark(view.state)) for view in replicas],
    }
    facts = context["row"].view.facts
    context["gpus_absent"] = gpus_text(facts) if facts and not facts.gpus else ""
    if is_poll(request):
        return render(request, "nodes/live.html", context)
    context["changes"] = history.recent(row.name, "node")
    return render(request, "nodes/node.html", context)
