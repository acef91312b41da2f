"""Usage: who used what, day by day, from the exact counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from console import usage_charts
from console.csv_file import csv_response
from console.pages.analysis import chart_csv, charts_response, places
from console.time_range import time_control, zone_of
from console.usage_query import COLUMNS, GROUPINGS, SPANS, UsageAsked, usage_asked_read
from routing.models import UsageHour
from routing.selectors.keys import key_names
from routing.selectors.usage import (
    FIGURES,
    GROUPS,
    UsageRow,
    Used,
    usage_newest_hour,
    usage_read,
    usage_rows,
    usage_sum,
)

_ROWS = 100
_CSV_ROWS = 200_000


@dataclass(frozen=True)
class Line:
    """A row of the table. ``note`` says more of its last name, ``query`` is the address
    that looks closer, ``partial`` whether more will come, ``width`` that of its bar."""

    names: list[str]
    note: str
    used: Used
    query: str
    partial: bool
    width: str


@require_safe
def usage(request: HttpRequest) -> HttpResponse:
    asked = usage_asked_read(request.GET, zone=zone_of(request.user))
    columns = COLUMNS[asked.by]
    rows = usage_read(wanted=asked.wanted, group=columns)
    total = usage_sum(rows)
    today = timezone.localdate(timezone=asked.range.zone)
    # Days are read in their order; of everything else the most come first.
    rows.reverse()
    if asked.by != "day":
        rows.sort(key=lambda row: (row.used.tokens, row.used.requests), reverse=True)
    shown = rows if asked.by == "day" else rows[:_ROWS]
    most = max((row.used.tokens for row in shown), default=0)
    keys = {row.of["key"] for row in shown} if asked.by == "key" else set()
    notes = key_names(ids=keys)
    context: dict[str, Any] = {
        "asked": asked,
        "columns": columns,
        "lines": [_line(asked, row, notes, today, most) for row in shown],
        "others": total - usage_sum(shown),
        "others_count": len(rows) - len(shown),
        "total": total,
        "control": time_control(
            asked.range,
            {n: v for n, v in asked.given.items() if n not in asked.range.given},
            own_zone=zone_of(request.user),
            spans=SPANS,
            by_day=True,
        ),
        "groups": [(n, words, asked.query(by=n)) for n, words in GROUPINGS.items()],
        "chips": _chips(asked),
        "today_included": asked.wanted.first <= today <= asked.wanted.last,
        "newest_hour": usage_newest_hour(),
        "zone": asked.range.zone.key,
        "any": bool(rows) or UsageHour.objects.exists(),
        "places": places(
            usage_charts.TITLES,
            dict.fromkeys(usage_charts.TITLES, _("per day")),
            reverse("usage-chart-csv"),
            asked.given,
        ),
        "data_url": f"{reverse('usage-data')}?{asked.query()}",
    }
    return render(request, "usage/index.html", context)


def _line(
    asked: UsageAsked, row: UsageRow, notes: dict[str, str], today: date, most: int
) -> Line:
    names = [str(value) for value in row.of.values()]
    return Line(
        names,
        notes.get(names[-1], ""),
        row.used,
        _closer(asked, row),
        row.of.get("day") == today,
        f"{row.used.tokens / most * 100 if most else 0:.2f}%",
    )


def _closer(asked: UsageAsked, row: UsageRow) -> str:
    """A team by its keys, a model by its versions, a day by its teams, the rest by
    day; empty for what has no name."""
    if not all(row.of.values()):
        return ""
    if asked.by == "day":
        day, zone = row.of["day"].isoformat(), asked.range.zone.key
        return asked.query(
            by="team", range="", **{"from": day, "to": day, "zone": zone}
        )
    by = {"team": "key", "model": "version"}.get(asked.by, "day")
    return asked.query(by=by, **row.of)


def _chips(asked: UsageAsked) -> list[tuple[str, str, str]]:
    """Filters in force: name, value, the address without it."""
    labels = {
        "team": _("Team"),
        "key": _("Key"),
        "model": _("Model"),
        "version": _("Version"),
    }
    return [
        (labels[name], asked.given[name], asked.query(**{name: ""}))
        for name in labels
        if name in asked.given
    ]


@require_safe
def usage_csv(request: HttpRequest) -> HttpResponse:
    """The same span and filters as a file, by day, team, key, model and version."""
    asked = usage_asked_read(request.GET, zone=zone_of(request.user))
    rows = usage_rows(wanted=asked.wanted, group=GROUPS)[: _CSV_ROWS + 1]
    found = list(rows)
    problems = [*asked.problems, *asked.range.errors.values()]
    if len(found) > _CSV_ROWS or problems:
        refusal = _("These are too many rows for one file: choose fewer days.")
        text = "\n".join(problems) or refusal
        return HttpResponse(text, status=422, content_type="text/plain; charset=utf-8")
    cells = ([row[name] for name in (*GROUPS, *FIGURES)] for row in found)
    name = f"usage-{asked.wanted.first}-{asked.wanted.last}.csv"
    return csv_response(name, (*GROUPS, *FIGURES), cells)


@require_safe
def usage_data(request: HttpRequest) -> HttpResponse:
    """The charts of the same span and filters as figures."""
    asked = usage_asked_read(request.GET, zone=zone_of(request.user))
    return charts_response(usage_charts.charts(asked, now=timezone.now()))


@require_safe
def usage_chart_csv(request: HttpRequest) -> HttpResponse:
    """The numbers of one chart."""
    asked = usage_asked_read(request.GET, zone=zone_of(request.user))
    for chart in usage_charts.charts(asked, now=timezone.now()):
        if chart.name == request.GET.get("chart"):
            return chart_csv(chart, f"usage-{chart.name}-by-{asked.by}.csv")
    raise Http404
