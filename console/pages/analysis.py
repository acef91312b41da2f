"""Analysis of a model over time: a page that is there at once, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from cluster.selectors import model_get
from console import analysis as model_analysis
from console.csv_file import csv_response
from console.figures import Axis, Chart, chart_json
from console.time_range import (
    SPANS,
    TimeRange,
    time_control,
    time_range_read,
    zone_of,
)
from routing.selectors.buckets import Buckets, buckets_make

_USUAL = "24h"


@dataclass(frozen=True)
class Place:
    """Where a chart will be drawn; ``unit`` stands in its title."""

    name: str
    title: str
    unit: str
    csv_url: str


def places(
    titles: dict[str, Any], units: dict[str, str], csv_url: str, query: dict[str, str]
) -> list[Place]:
    return [
        Place(
            name,
            str(title),
            units[name],
            f"{csv_url}?{urlencode(query | {'chart': name})}",
        )
        for name, title in titles.items()
    ]


@require_safe
def analysis(request: HttpRequest, model: str) -> HttpResponse:
    row = model_get(name=model)
    chosen, buckets, _axis = _asked(request)
    units = {n: model_analysis.unit(n, buckets.step) for n in model_analysis.NAMES}
    data_url = reverse("analysis-data", args=[row.name])
    csv_url = reverse("analysis-csv", args=[row.name])
    context = {
        "model": row,
        "control": time_control(chosen, {}, own_zone=zone_of(request.user)),
        "zone": str(chosen.zone),
        "since": buckets.edges[0],
        "partial": buckets.is_partial,
        "changes": (found := model_analysis.changes(row, buckets)),
        # Counted only where there may be more.
        "changes_older": model_analysis.changes_older(row, buckets)
        if len(found) == model_analysis.MARKS_MOST
        else 0,
        "places": places(model_analysis.TITLES, units, csv_url, chosen.given),
        "data_url": f"{data_url}?{urlencode(chosen.given)}",
    }
    return render(request, "analysis/model.html", context)


@require_safe
def analysis_data(request: HttpRequest, model: str) -> HttpResponse:
    """The charts as figures."""
    row = model_get(name=model)
    _chosen, buckets, axis = _asked(request)
    scene = model_analysis.scene_make(row, buckets, axis)
    return charts_response(model_analysis.charts(scene))


@require_safe
def analysis_csv(request: HttpRequest, model: str) -> HttpResponse:
    """The numbers of one chart, in the zone that it shows."""
    row = model_get(name=model)
    name = request.GET.get("chart", "")
    if name not in model_analysis.NAMES:
        raise Http404
    _chosen, buckets, axis = _asked(request)
    scene = model_analysis.scene_make(row, buckets, axis)
    chart = model_analysis.charts(scene, [name])[0]
    return chart_csv(chart, f"{row.name}-{name}.csv")


def charts_response(charts: Sequence[Chart]) -> JsonResponse:
    return JsonResponse({"charts": [chart_json(chart) for chart in charts]})


def chart_csv(chart: Chart, name: str) -> HttpResponse:
    head = [f"{chart.time_word} ({chart.axis.zone})", *chart.columns[1:]]
    return csv_response(name, head, chart.rows)


def _asked(request: HttpRequest) -> tuple[TimeRange, Buckets, Axis]:
    now = timezone.now()
    zone = zone_of(request.user)
    chosen = time_range_read(request.GET, zone=zone, now=now, usual=_USUAL)
    until = chosen.until or now
    since = chosen.since or until - SPANS[_USUAL][0]
    buckets = buckets_make(since=since, until=until, now=now, zone=chosen.zone)
    axis = Axis(buckets.starts, buckets.edges[-1], buckets.step, now, chosen.zone)
    return chosen, buckets, axis
