"""Every generation of a route: who, why, how long; any two compared, any restored.

A restore is shown before it is made: what would differ from what is in force, and
how much traffic moves. It carries the generation that its author saw; after a change
of somebody else it changes nothing and shows both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods

from cluster.errors import Conflict, Missing
from cluster.models import Version
from console.audit_diff import Changed, changed
from console.history import percent
from console.pages import actor_of
from console.pages.undo import weights_undo_offer
from console.shares import Slice, slices
from routing.models import Generation
from routing.selectors import generation_list, route_get
from routing.selectors.fleet import ModelView, model_view
from routing.selectors.measured import draws_per_minute, served_by_generation
from routing.services import generation_restore

_ROWS = 25


@dataclass(frozen=True)
class Line:
    """``settings`` is what differs from the generation before, ``lasted`` how long it
    was in force, empty while it is; ``served`` its requests."""

    generation: Generation
    bar: list[Slice]
    settings: list[Changed]
    lasted: str
    served: int


@dataclass(frozen=True)
class Comparison:
    """What differs between two generations, weights and settings."""

    first: Generation
    second: Generation
    weights: list[Changed]
    settings: list[Changed]

    @property
    def same(self) -> bool:
        return not self.weights and not self.settings


@require_http_methods(["GET", "HEAD", "POST"])
def route_history(request: HttpRequest, model: str) -> HttpResponse:
    if request.method == "POST":
        return _restore(request, model)
    return _page(request, model_view(model=model))


def _restore(request: HttpRequest, model: str) -> HttpResponse:
    number = _number(request.POST.get("number", ""))
    seen = _number(request.POST.get("generation", ""))
    try:
        generation = generation_restore(
            route=route_get(model=model),
            number=-1 if number is None else number,
            generation=-1 if seen is None else seen,
            actor=actor_of(request),
        )
    except Conflict:
        view = model_view(model=model)
        return _page(request, view, wanted=number, seen=seen, status=409)
    if generation.number != number:
        weights_undo_offer(request, model=model, generation=generation)
    return redirect("traffic", model=model)


def _page(
    request: HttpRequest,
    view: ModelView,
    *,
    wanted: int | None = None,
    seen: int | None = None,
    status: int = 200,
) -> HttpResponse:
    """``wanted`` is the generation whose restore met another change, ``seen`` the one
    that its author saw in force."""
    conflict = status == 409
    asked, problems = _asked(request, view, wanted)
    lines, older = _lines(view, _number(request.GET.get("before", "")))
    context: dict[str, Any] = {
        "view": view,
        "lines": lines,
        "older": older,
        "paged": "before" in request.GET,
        "problems": problems,
        "compared": asked.get("compared"),
        "restore": asked.get("restore"),
        "effect": _effect(view, asked["restore"].second) if "restore" in asked else [],
        "theirs": _meanwhile(view, seen) if conflict else None,
        "conflict": conflict,
    }
    return render(request, "traffic/history.html", context, status=status)


def _asked(
    request: HttpRequest, view: ModelView, wanted: int | None
) -> tuple[dict[str, Comparison], list[str]]:
    """The comparison and the restore that the address names, and what it names that
    there is not."""
    query = request.GET
    pairs: dict[str, tuple[str, str]] = {}
    now = str(view.generation)
    if wanted is not None or query.get("restore"):
        pairs["restore"] = (now, str(wanted or query.get("restore", "")))
    elif query.get("from") or query.get("to"):
        pairs["compared"] = (query.get("from") or now, query.get("to") or now)
    found: dict[str, Comparison] = {}
    problems = []
    for name, pair in pairs.items():
        try:
            found[name] = compare(view, *(_generation(view, text) for text in pair))
        except Missing as missing:
            problems.append(str(missing.message))
    return found, problems


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _generation(view: ModelView, text: str) -> Generation:
    number = _number(text)
    rows = Generation.objects.filter(route__model=view.model)
    row = None
    if number is not None:
        row = rows.prefetch_related("weights__version").filter(number=number).first()
    if row is None:
        raise Missing(
            _("The route has no generation “%(number)s”.") % {"number": text[:20]},
            field="generation",
        )
    return row


def _meanwhile(view: ModelView, seen: int | None) -> Comparison | None:
    """What the others changed since the author looked; None if nobody knows."""
    if seen is None:
        return None
    try:
        pair = (_generation(view, str(seen)), _generation(view, str(view.generation)))
    except Missing:
        return None
    return compare(view, *pair)


# Differences -----------------------------------------------------------------------


def compare(view: ModelView, first: Generation, second: Generation) -> Comparison:
    old, new = _weights(first), _weights(second)
    weights = [
        Changed(name, percent(old.get(name, 0)), percent(new.get(name, 0)))
        for name in (part.version.name for part in view.versions)
        if old.get(name, 0) != new.get(name, 0)
    ]
    return Comparison(first, second, weights, _settings_changed(first, second))


def _weights(generation: Generation) -> dict[str, int]:
    return {row.version.name: row.weight_bp for row in generation.weights.all()}


def _settings_changed(first: Generation, second: Generation) -> list[Changed]:
    return changed(_settings(first), _settings(second))


def _settings(generation: Generation) -> Any:
    """Whole, so that a default that was spelled out is no change; what this release
    cannot read stays as it is stored."""
    try:
        return msgspec.to_builtins(generation.decoded)
    except msgspec.ValidationError:
        return generation.settings


def _effect(view: ModelView, past: Generation) -> list[str]:
    """What a restore would do to the traffic, in numbers."""
    weights = _weights(past)
    gains = {
        part.version.name: weights.get(part.version.name, 0) - part.weight_bp
        for part in view.versions
    }
    moved = sum(gain for gain in gains.values() if gain > 0)
    if not moved:
        return [_("No traffic moves: the weights are those in force.")]
    told = [_("%(share)s of the requests go elsewhere.") % {"share": percent(moved)}]
    if (rate := draws_per_minute(model=view.model.name)) is not None:
        each = round(rate * moved / 10_000)
        told.append(
            ngettext(
                "That is about %(n)d request a minute.",
                "That is about %(n)d requests a minute.",
                each,
            )
            % {"n": each}
        )
    told += [
        _("%(name)s would get %(share)s and has no ready replica.")
        % {"name": part.version.name, "share": percent(weights[part.version.name])}
        for part in view.versions
        if weights.get(part.version.name) and not part.ready
    ]
    return told


# The list --------------------------------------------------------------------------


def _lines(view: ModelView, before: int | None) -> tuple[list[Line], int]:
    """The generations older than ``before``, newest first, and where the next page
    goes on; 0 on the last one. One more is read at each end: its age ends the first,
    its settings are compared with the last."""
    rows = generation_list(route=route_get(model=view.model.name))
    if before is not None:
        rows = rows.filter(number__lte=before)
    found = list(rows[: _ROWS + 2])
    newer = None
    if before is not None and found and found[0].number == before:
        newer = found.pop(0)
    shown = found[:_ROWS]
    served = served_by_generation(
        model=view.model.name, numbers=[row.number for row in shown]
    )
    versions = [part.version for part in view.versions]
    olders = [*found[1:], None]
    newers = [newer, *shown]
    lines = [
        Line(
            row,
            _bar(row, versions),
            _settings_changed(older, row) if older else [],
            lasted_text(row.created_at, after.created_at) if after else "",
            served.get(row.number, 0),
        )
        for row, older, after in zip(shown, olders, newers, strict=False)
    ]
    return lines, shown[-1].number if len(found) > _ROWS else 0


def _bar(generation: Generation, versions: list[Version]) -> list[Slice]:
    bp = {row.version_id: row.weight_bp for row in generation.weights.all()}
    return slices((version.name, bp.get(version.pk, 0)) for version in versions)


def lasted_text(start: datetime, end: datetime) -> str:
    """A span of time in its largest unit."""
    seconds = (end - start).total_seconds()
    for unit_s, words in (
        (86_400, _("%(n)d d")),
        (3600, _("%(n)d h")),
        (60, _("%(n)d min")),
    ):
        if seconds >= unit_s:
            return words % {"n": seconds // unit_s}
    return _("%(n)d s") % {"n": max(seconds, 0)}
