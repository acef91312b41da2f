"""Charts of analysis pages: one set of numbers as a figure, a table and a file.

Pure. Figures are plain dictionaries in the notation of Plotly, whose package is never
imported for a page. Colours are names of the style sheet's tokens, which the browser
replaces by what they are in the reader's theme.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import Any, Literal

Value = float | int | None
Figure = dict[str, Any]

# As many as the design tells apart; whatever comes after shares the grey one.
SERIES = 5
# So many letters find room side by side.
_LETTERS_MOST = 24
# Not the vertical one, which would look like bars.
_PATTERNS = ("", "/", ".", "\\", "+", "-")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")


@dataclass(frozen=True)
class Series:
    """``place`` gives the colour, and with it the pattern or symbol, so that a thing
    looks the same in every chart."""

    name: str
    values: Sequence[Value]
    place: int
    dash: Literal["solid", "dash"] = "solid"


@dataclass(frozen=True)
class Marker:
    """A moment at which something was changed, told by a letter."""

    letter: str
    at: datetime


@dataclass(frozen=True)
class Axis:
    """The beginnings of the parts that values belong to. The last part goes on while
    ``now`` is before its end."""

    starts: Sequence[datetime]
    end: datetime
    step: timedelta
    now: datetime
    zone: tzinfo

    @property
    def is_partial(self) -> bool:
        return bool(self.starts) and self.starts[-1] <= self.now < self.end

    def text(self, moment: datetime) -> str:
        """A wall time of the zone, as tables, files and the axis have it."""
        local = moment.astimezone(self.zone)
        return f"{local:%Y-%m-%d}" if self.by_day else f"{local:%Y-%m-%d %H:%M}"

    @property
    def by_day(self) -> bool:
        return self.step >= timedelta(days=1)


@dataclass(frozen=True)
class Chart:
    """``summary`` is the chart in a sentence, for those who do not see it; ``note``
    what one has to know to trust it."""

    name: str
    title: str
    unit: str
    kind: Literal["bars", "lines"]
    axis: Axis
    series: Sequence[Series]
    time_word: str = ""
    summary: str = ""
    note: str = ""
    markers: Sequence[Marker] = field(default=())

    @property
    def columns(self) -> list[str]:
        return [self.time_word, *(one.name for one in self.series)]

    @property
    def rows(self) -> list[list[Any]]:
        """Oldest first; None where there is no value."""
        values = zip(*(one.values for one in self.series), strict=True)
        texts = map(self.axis.text, self.axis.starts)
        return [[text, *row] for text, row in zip(texts, values, strict=False)]

    @property
    def is_empty(self) -> bool:
        return not any(value for one in self.series for value in one.values)


def chart_json(chart: Chart) -> dict[str, Any]:
    """What ``static/js/analysis.js`` draws."""
    return {
        "name": chart.name,
        "empty": chart.is_empty,
        "summary": chart.summary,
        "note": chart.note,
        "columns": chart.columns,
        "rows": chart.rows,
        "partial": chart.axis.is_partial,
        "figure": figure(chart),
    }


def figure(chart: Chart) -> Figure:
    x = [chart.axis.text(start) for start in chart.axis.starts]
    trace = _bars if chart.kind == "bars" else _line
    return {
        "data": [trace(chart.axis, x, one) for one in chart.series],
        "layout": _layout(chart),
    }


def _plain(text: str) -> str:
    """Plotly reads a few tags in its texts; ours are names that have none."""
    return html.escape(text, quote=False)


def colour(place: int) -> str:
    return f"var(--series-{min(place, SERIES) + 1})"


def _bars(axis: Axis, x: list[str], one: Series) -> Figure:
    patterns = [_PATTERNS[min(one.place, SERIES)]] * len(x)
    step_ms = axis.step.total_seconds() * 1000
    opacity = [1.0] * len(x)
    if axis.is_partial:
        patterns[-1], opacity[-1] = "x", 0.6
    return {
        "type": "bar",
        "name": _plain(one.name),
        "x": x,
        "y": list(one.values),
        "offset": 0,
        "width": step_ms * 0.86,
        "marker": {
            "color": colour(one.place),
            "opacity": opacity,
            "line": {"width": 0},
            "pattern": {
                "shape": patterns,
                "size": 6,
                "solidity": 0.2,
                "fgcolor": "var(--surface)",
                "fillmode": "overlay",
            },
        },
    }


def _line(axis: Axis, x: list[str], one: Series) -> Figure:
    symbols = [_SYMBOLS[min(one.place, SERIES)]] * len(x)
    if axis.is_partial:
        symbols[-1] = f"{symbols[-1]}-open"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": _plain(one.name),
        "x": x,
        "y": list(one.values),
        "connectgaps": False,
        "line": {"color": colour(one.place), "dash": one.dash, "width": 2},
        "marker": {"color": colour(one.place), "symbol": symbols, "size": 5},
    }


def _layout(chart: Chart) -> Figure:
    axis = chart.axis
    line = {"gridcolor": "var(--line)", "linecolor": "var(--line)", "zeroline": False}
    return {
        "barmode": "stack",
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": -0.22,
            "yanchor": "top",
            "traceorder": "normal",
        },
        "hovermode": "x unified",
        "dragmode": False,
        "margin": {"l": 56, "r": 12, "t": 22, "b": 40},
        "font": {"color": "var(--text-2)", "size": 12},
        "paper_bgcolor": "var(--surface)",
        "plot_bgcolor": "var(--surface)",
        "hoverlabel": {
            "bgcolor": "var(--surface)",
            "bordercolor": "var(--line)",
            "font": {"color": "var(--text)"},
        },
        "xaxis": {
            **line,
            "type": "date",
            "range": [_moment(axis, axis.starts[0]), _moment(axis, axis.end)],
            "fixedrange": True,
            # Digits only: they need no language.
            "tickformat": "%m-%d" if axis.by_day else "%H:%M\n%m-%d",
            "hoverformat": "%Y-%m-%d" if axis.by_day else "%Y-%m-%d %H:%M",
            "nticks": 8,
        },
        "yaxis": {
            **line,
            "rangemode": "tozero",
            "fixedrange": True,
            "separatethousands": True,
            "hoverformat": ",.4~g" if chart.kind == "lines" else ",d",
        },
        "shapes": [*_partial(axis), *(_hairline(axis, one) for one in chart.markers)],
        "annotations": [_letters(axis, some) for some in _close(chart)],
    }


def _moment(axis: Axis, moment: datetime) -> str:
    return f"{moment.astimezone(axis.zone):%Y-%m-%d %H:%M:%S}"


def _partial(axis: Axis) -> list[Figure]:
    """The part that is not over, with a dotted edge around it."""
    if not axis.is_partial:
        return []
    edges = {"x0": _moment(axis, axis.starts[-1]), "x1": _moment(axis, axis.end)}
    return [
        {
            **edges,
            "type": "rect",
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "layer": "below",
            "fillcolor": "var(--sunken)",
            "line": {"color": "var(--control)", "width": 1, "dash": "dot"},
        }
    ]


def _hairline(axis: Axis, one: Marker) -> Figure:
    at = _moment(axis, one.at)
    return {
        "type": "line",
        "yref": "paper",
        "x0": at,
        "x1": at,
        "y0": 0,
        "y1": 1,
        "line": {"color": "var(--muted)", "width": 1},
    }


def _close(chart: Chart) -> list[list[Marker]]:
    """Markers in runs whose letters would lie on each other."""
    span = chart.axis.end - chart.axis.starts[0]
    runs: list[list[Marker]] = []
    for one in chart.markers:
        if runs and one.at - runs[-1][0].at < span / _LETTERS_MOST:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _letters(axis: Axis, some: list[Marker]) -> Figure:
    first, last = some[0].letter, some[-1].letter
    return {
        "text": first if first == last else f"{first}–{last}",
        "x": _moment(axis, some[0].at),
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": "var(--text-2)", "size": 11},
    }
