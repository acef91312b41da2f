"""Is the service fine, and if not, where to click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from cluster.models import AuditRecord
from cluster.selectors.audit import audit_list
from console import history
from console.measured import check_mark, checks
from console.needs import SHOWN_MOST, needs
from console.pages import is_poll
from console.shares import Slice, slices
from console.status import Mark, model_mark, trouble_rank
from routing.models import ApiKey, UsageHour
from routing.selectors import Applied, applied_state
from routing.selectors.fleet import ModelView, fleet_list
from routing.selectors.measured import RouteMeasured, measured_list, split_list
from routing.selectors.pulse import Pulse, pulse_list

_CHANGES = 10


@dataclass(frozen=True)
class ModelRow:
    """``check`` is shown only where it speaks up: when the weights do not hold."""

    view: ModelView
    mark: Mark
    slices: list[Slice]
    measured: RouteMeasured | None
    check: Mark | None
    pulse: Pulse | None = None

    @property
    def line(self) -> str:
        """The last hour as the points of a line, 120 wide and 24 high."""
        points = self.pulse.points if self.pulse else []
        most = max(points, default=0) or 1
        step = 120 / max(len(points) - 1, 1)
        return " ".join(
            f"{n * step:.1f},{23 - value / most * 22:.1f}"
            for n, value in enumerate(points)
        )


@dataclass(frozen=True)
class Step:
    """One of the first steps; ``done`` is read from reality."""

    text: str
    url: str
    done: bool


def model_rows(
    views: list[ModelView], pulses: dict[str, Pulse] | None = None
) -> list[ModelRow]:
    pulses = pulses or {}
    splits = split_list()
    measured = measured_list(splits)
    found = checks(splits) or {}
    rows = []
    for view in views:
        name = view.model.name
        check = found.get(name)
        rows.append(
            ModelRow(
                view,
                model_mark(view),
                slices((part.version.name, part.weight_bp) for part in view.versions),
                measured.get(name),
                check_mark(check) if check and check.fails else None,
                pulses.get(name),
            )
        )
    return rows


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    views = fleet_list()
    rows = sorted(
        model_rows(views, pulse_list()), key=lambda row: trouble_rank(row.mark)
    )
    applied = _applied()
    ill = needs(views)
    context: dict[str, Any] = {
        "rows": rows,
        "applied": applied,
        "verdict": verdict(rows, applied),
        "needs": ill[:SHOWN_MOST],
        "needs_more": max(0, len(ill) - SHOWN_MOST),
    }
    if is_poll(request):
        return render(request, "overview/live.html", context)
    context["changes"] = history.entries(_changes()[:_CHANGES])
    context["steps"] = first_steps(views)
    return render(request, "overview/index.html", context)


def _changes() -> QuerySet[AuditRecord]:
    """What was changed: who came in, or tried to, is for the audit log alone."""
    noise = ["session.login", "session.refused", "access.refused"]
    return audit_list().exclude(action__in=noise)


def _applied() -> Applied | None:
    try:
        return applied_state()
    except redis.RedisError:
        return None


def verdict(rows: list[ModelRow], applied: Applied | None) -> Mark:
    """The state of the service in one line, the worst first."""
    if not rows:
        return Mark("idle", _("Nothing is served yet."), _("Add a first model."))
    if applied is None:
        return Mark(
            "stale",
            _("Unknown: Redis does not answer."),
            _("Gateways keep serving from what they last knew."),
        )
    if applied.of == 0:
        return Mark(
            "err",
            _("No gateway is running."),
            _("Nobody can call the models until one starts."),
        )
    ill = [row for row in rows if row.mark.token in ("err", "warn", "stale")]
    astray = [row for row in rows if row.check]
    if astray and not (ill and ill[0].mark.token == "err"):
        return _astray_verdict(astray[0])
    if ill:
        word = ngettext(
            "%(ill)d of %(all)d models needs attention.",
            "%(ill)d of %(all)d models need attention.",
            len(ill),
        ) % {"ill": len(ill), "all": len(rows)}
        name, sentence = ill[0].view.model.name, ill[0].mark.sentence
        return Mark(
            ill[0].mark.token,
            word,
            _("%(name)s: %(sentence)s") % {"name": name, "sentence": sentence},
        )
    serving = sum(row.mark.token == "ok" for row in rows)
    if not serving:
        return Mark("idle", _("No model is ready to serve yet."))
    if not applied.complete:
        return Mark("info", _("All is well; a change is on its way to the gateways."))
    return Mark(
        "ok",
        ngettext(
            "%(n)d model serves, all is well.",
            "%(n)d models serve, all is well.",
            serving,
        )
        % {"n": serving},
    )


def _astray_verdict(row: ModelRow) -> Mark:
    assert row.check is not None
    return Mark(
        "err",
        _("Requests are not split as wanted."),
        _("%(name)s: %(sentence)s")
        % {"name": row.view.model.name, "sentence": row.check.sentence},
    )


def _model_address(views: list[ModelView]) -> str:
    return reverse("model", args=[views[0].model.name]) if views else reverse("models")


def first_steps(views: list[ModelView]) -> list[Step]:
    """The way to a first answer; empty once everything on it was done."""
    versions = [version for view in views for version in view.versions]
    with_version = next((v for v in views if not v.versions), None)
    steps = [
        Step(
            _("Create a model, the name that clients ask for."),
            reverse("model-new"),
            bool(views),
        ),
        Step(
            _("Add a version: which engine serves it, under which name."),
            reverse("version-new", args=[with_version.model.name])
            if with_version
            else reverse("models"),
            bool(versions),
        ),
        Step(
            _("Add a replica: the address where it runs."),
            reverse("replica-new"),
            any(version.replicas for version in versions),
        ),
        Step(
            _("Create a team and issue its first key."),
            reverse("teams"),
            ApiKey.objects.exists(),
        ),
        Step(
            _("Send a first request: the model's page has the command."),
            reverse("model", args=[views[0].model.name])
            if views
            else reverse("models"),
            # Kept longest: a quiet week is no new beginning.
            UsageHour.objects.exists(),
        ),
    ]
    return [] if all(step.done for step in steps) else steps
