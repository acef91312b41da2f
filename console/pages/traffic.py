"""Who gets what: the weights of a model, wanted, applied and measured, and how to
move them.

Nothing is written while a slider moves. One POST carries all weights and the
generation that its author saw; a stale one changes nothing and comes back with
both sides. The page works without a script: the number fields are the truth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from cluster.errors import Conflict, Refused
from console.history import percent
from console.measured import check_mark, checks, measured_bar
from console.pages import actor_of, generation_seen, is_poll
from console.pages.undo import weights_undo_offer
from console.shares import Slice, slices
from console.status import Mark, version_mark
from routing.models import Generation
from routing.selectors import route_get
from routing.selectors.applied import RouteApplied, route_applied
from routing.selectors.fleet import ModelView, VersionView, model_view
from routing.selectors.measured import draws_per_minute, measured_list, split_list
from routing.services import weights_set

_HISTORY = 20


@dataclass
class Draft:
    """What a person has put in and not yet applied; texts as they were typed.

    ``conflict`` is set when the generation they saw is no longer in force.
    """

    texts: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    reason: str = ""
    conflict: bool = False
    restored: int = 0


@dataclass(frozen=True)
class Row:
    """One version in the editor; ``most_bp`` caps what a version may be given."""

    part: VersionView
    mark: Mark
    series: int
    text: str
    error: str
    most_bp: int


@require_http_methods(["GET", "HEAD", "POST"])
def traffic(request: HttpRequest, model: str) -> HttpResponse:
    if request.method == "POST":
        return _apply(request, model)
    view = model_view(model=model)
    if is_poll(request):
        return render(request, "traffic/applied.html", _applied_context(view))
    return _page(request, view, _draft_of(request, view))


def _draft_of(request: HttpRequest, view: ModelView) -> Draft:
    """An earlier generation as a draft, when ``?draft=`` names one."""
    number = request.GET.get("draft", "")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return Draft()
    past = Generation.objects.filter(
        route__model=view.model, number=int(number)
    ).first()
    if past is None:
        return Draft()
    rows = past.weights.select_related("version")
    shares = {row.version.name: row.weight_bp for row in rows}
    return Draft(
        texts={
            p.version.name: _text(shares.get(p.version.name, 0)) for p in view.versions
        },
        reason=_("as in generation %(number)d") % {"number": past.number},
        restored=past.number,
    )


def _apply(request: HttpRequest, model: str) -> HttpResponse:
    """Parse, call the service once, and show what came of it."""
    route = route_get(model=model)
    names = list(route.model.versions.order_by("id").values_list("name", flat=True))
    draft = Draft(reason=request.POST.get("reason", "")[:200])
    weights: dict[str, int] = {}
    for name in names:
        draft.texts[name] = request.POST.get(f"weight.{name}", "")[:20]
        try:
            weights[name] = percent_parse(draft.texts[name])
        except ValueError as error:
            draft.errors[name] = str(error)
    if draft.errors:
        return _page(request, model_view(model=model), draft, status=422)
    seen = generation_seen(request)
    try:
        generation = weights_set(
            route=route,
            weights=weights,
            generation=seen,
            reason=draft.reason,
            actor=actor_of(request),
        )
    except Conflict:
        draft.conflict = True
        return _page(request, model_view(model=model), draft, status=409)
    except Refused as refusal:
        draft.problem = _sum_problem(weights) or str(refusal.message)
        return _page(request, model_view(model=model), draft, status=422)
    if generation.number == seen:
        # Taking this back would take back what somebody did before.
        messages.success(request, _("No change yet: these weights are in force."))
        return redirect("traffic", model=model)
    weights_undo_offer(request, model=model, generation=generation)
    return redirect("traffic", model=model)


def _sum_problem(weights: dict[str, int]) -> str:
    """The wrong sum in the unit of the page, or empty if the sum is right."""
    total = sum(weights.values())
    if total == 10_000:
        return ""
    return _("The shares sum to %(sum)s; they must sum to 100 %%.") % {
        "sum": percent(total)
    }


def percent_parse(text: str) -> int:
    """Basis points from a percentage such as ``12.34``; ``ValueError`` says what is
    wrong in words."""
    cleaned = text.strip().removesuffix("%").strip().replace(",", ".")
    try:
        value = Decimal(cleaned) * 100
        exact = value == value.to_integral_value()
    except ArithmeticError:
        raise ValueError(_("Write a percentage such as 12.5.")) from None
    if not value.is_finite() or not 0 <= value <= 10_000:
        raise ValueError(_("A share lies between 0 and 100 %."))
    if not exact:
        raise ValueError(_("The smallest step is 0.01 %."))
    return int(value)


def _text(weight_bp: int) -> str:
    return f"{weight_bp / 100:g}"


def _page(
    request: HttpRequest, view: ModelView, draft: Draft, *, status: int = 200
) -> HttpResponse:
    rows = [_row(index, part, draft) for index, part in enumerate(view.versions)]
    history = _history(view)
    context = _applied_context(view) | {
        "rows": rows,
        "draft": draft,
        "history": history,
        "theirs": history[0][0] if history else None,
        "editor": _editor_data(view, rows, draft),
        "legend": _slices(view),
    }
    return render(request, "traffic/index.html", context, status=status)


def _row(index: int, part: VersionView, draft: Draft) -> Row:
    """A version without a ready replica keeps at most the share that it has."""
    name = part.version.name
    return Row(
        part=part,
        mark=version_mark(part),
        series=min(index, 5) + 1,
        text=draft.texts.get(name, _text(part.weight_bp)),
        error=draft.errors.get(name, ""),
        most_bp=part.weight_bp if part.ready == 0 else 10_000,
    )


def _editor_data(view: ModelView, rows: list[Row], draft: Draft) -> dict[str, Any]:
    """What the script needs to know; plain data, read from a JSON block."""
    return {
        "model": view.model.name,
        "generation": view.generation,
        "fromServer": bool(draft.texts),
        "conflict": draft.conflict,
        "capped": any(row.most_bp < 10_000 for row in rows),
        "versions": [
            {
                "name": row.part.version.name,
                "weight": row.part.weight_bp,
                "most": row.most_bp,
                "ready": row.part.ready,
            }
            for row in rows
        ],
    }


def _slices(view: ModelView) -> list[Slice]:
    return slices((part.version.name, part.weight_bp) for part in view.versions)


def _applied_context(view: ModelView) -> dict[str, Any]:
    """The bars of what is saved, of what the gateways say they apply, and of what
    they served."""
    model = view.model.name
    applied = route_applied(model=model)
    splits = split_list(model=model)
    names = [part.version.name for part in view.versions]
    return {
        "view": view,
        "saved": json.dumps({p.version.name: p.weight_bp for p in view.versions}),
        "applied": applied,
        "applied_bars": _applied_bars(applied, names) if applied else [],
        "bar": measured_bar(measured_list(splits)[model]),
        "draw_check": check_mark((checks(splits) or {}).get(model)),
        "rate": draws_per_minute(model=model),
        "poll_s": 5 if applied is None or applied.complete or not applied.of else 1,
    }


def _applied_bars(
    applied: RouteApplied, names: list[str]
) -> list[tuple[str, list[Slice]]]:
    bars = []
    for share in applied.shares:
        count = _("%(n)d of %(of)d gateways, revision %(revision)d") % {
            "n": share.gateways,
            "of": applied.of,
            "revision": share.revision,
        }
        weights = share.weights or {}
        bars.append((count, slices((name, weights.get(name, 0)) for name in names)))
    return bars


def _history(view: ModelView) -> list[tuple[Generation, list[Slice], float]]:
    """The newest generations, each with its bar and the age in seconds."""
    generations = (
        Generation.objects.filter(route__model=view.model)
        .prefetch_related("weights")
        .order_by("-number")[:_HISTORY]
    )
    now = timezone.now()
    rows = []
    for generation in generations:
        bp = {
            weight.version_id: weight.weight_bp for weight in generation.weights.all()
        }
        bar = slices((p.version.name, bp.get(p.version.pk, 0)) for p in view.versions)
        rows.append((generation, bar, (now - generation.created_at).total_seconds()))
    return rows
