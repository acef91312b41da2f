"""Analysis of a model over time: a page that is there at once, and its numbers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from cluster.selectors import model_get
from console import analysis as model_analysis
from console.analysis_range import SPANS, TimeRange, time_range_read
from console.figures import Axis, Chart, chart_json
from routing.selectors.buckets import Buckets, buckets_make


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
        "chosen": chosen,
        "spans": [(name, words) for name, (_span, words) in SPANS.items()],
        "zone": str(chosen.zone),
        "since": buckets.edges[0],
        "partial": buckets.is_partial,
        "changes": model_analysis.changes(row, buckets),
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
    file = StringIO()
    writer = csv.writer(file)
    writer.writerow(
        map(cell, [f"{chart.time_word} ({chart.axis.zone})", *chart.columns[1:]])
    )
    writer.writerows(chart.rows)
    response = HttpResponse(file.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def cell(text: str) -> str:
    """A name that a spreadsheet would take for a formula is marked as text."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _asked(request: HttpRequest) -> tuple[TimeRange, Buckets, Axis]:
    now = timezone.now()
    chosen = time_range_read(request.GET, zone=timezone.get_default_timezone(), now=now)
    buckets = buckets_make(
        since=chosen.since, until=chosen.until or now, now=now, zone=chosen.zone
    )
    axis = Axis(buckets.starts, buckets.edges[-1], buckets.step, now, chosen.zone)
    return chosen, buckets, axis
