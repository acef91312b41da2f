"""Charts of a model and of usage: the numbers behind them, as figure and as file."""

from __future__ import annotations

import csv
import time
from collections import Counter
from io import StringIO
from typing import Any
from urllib.parse import quote

import plotly.graph_objects as go
import pytest
from django.contrib.staticfiles import finders
from django.db.models import Sum
from django.test import Client
from django.utils import timezone

from console.analysis import MARKS_MOST, letters_of
from console.figures import _plain
from routing.contracts.outcome import Ending
from routing.models import UsageHour
from tests import fleet, outcomes
from tests.minutes import minutes_count

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

RANGES = ("1h", "6h", "24h", "7d", "30d")


def charts(page: Client, address: str) -> dict[str, Any]:
    response = page.get(address)
    assert response.status_code == 200
    found = {one["name"]: one for one in response.json()["charts"]}
    for one in found.values():
        go.Figure(one["figure"])
    return found


def file_rows(page: Client, address: str) -> list[list[str]]:
    response = page.get(address)
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.reader(StringIO(response.content.decode())))


def text_of(value: Any) -> str:
    return "" if value is None else str(value)


def fill() -> None:
    fleet.model_add("qwen", "v1", "v2")
    fleet.weights_give("qwen", {"v1": 9000, "v2": 1000}, "canary")
    now = time.time()
    found = [
        outcomes.outcome(
            now - n * 40,
            version=["v1", "v1", "v2"][n % 3],
            ending=[Ending.COMPLETED, Ending.TIMED_OUT][n % 7 == 0],
            first_content_ms=100.0 + n,
            team=["search", "ads", "ops"][n % 3],
            duration_ms=0.0,
        )
        for n in range(60)
    ]
    outcomes.keep(*found)
    outcomes.count(found)
    minutes_count(found)


@pytest.mark.parametrize("name", RANGES)
def test_figure_and_file_have_the_same_numbers(
    page: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill()
    # The rate of the part that is not over depends on the moment.
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)
    found = charts(page, f"/models/qwen/analysis.json?range={name}")
    assert list(found) == ["traffic", "errors", "ttft", "tokens"]
    for chart in found.values():
        head, *rows = file_rows(
            page, f"/models/qwen/analysis.csv?range={name}&chart={chart['name']}"
        )
        assert head[0] == "Time (UTC)" and head[1:] == chart["columns"][1:]
        assert rows == [[text_of(value) for value in row] for row in chart["rows"]]
        for place, trace in enumerate(chart["figure"]["data"], 1):
            assert trace["y"] == [row[place] for row in chart["rows"]]
            assert trace["x"] == [row[0] for row in chart["rows"]]
        assert not chart["empty"] and chart["partial"]


def test_requests_and_errors_add_up_to_the_counts(page: Client) -> None:
    fill()
    found = charts(page, "/models/qwen/analysis.json?range=6h")
    sums = {
        name: sum(value or 0 for row in chart["rows"] for value in row[1:])
        for name, chart in found.items()
    }
    total = UsageHour.objects.aggregate(n=Sum("requests"))["n"]
    bad = UsageHour.objects.filter(ending=Ending.TIMED_OUT)
    assert sums["traffic"] == total == 60
    assert sums["errors"] == bad.aggregate(n=Sum("requests"))["n"] == 9
    assert found["traffic"]["summary"] == "60 requests. v1 40, v2 20"
    assert found["errors"]["columns"] == ["Time", "Timed out"]


def test_what_was_not_collected_is_a_gap_and_no_zero(page: Client) -> None:
    fill()
    rows = charts(page, "/models/qwen/analysis.json?range=7d")["traffic"]["rows"]
    assert rows[0][1:] == [None, None]
    assert rows[-1][1:] != [None, None]


def test_every_change_of_the_model_is_a_line_with_a_letter(page: Client) -> None:
    fill()
    other = fleet.model_add("qwen-large", "v1")
    fleet.replica_add(other, "v1", 9000)
    layout = charts(page, "/models/qwen/analysis.json")["traffic"]["figure"]["layout"]
    runs = [one["text"] for one in layout["annotations"]]
    lines = [one for one in layout["shapes"] if one["type"] == "line"]
    # All were made at once, so their letters share one place.
    assert runs == ["A–D"] and len(lines) == 4
    text = page.get("/models/qwen/analysis").content.decode()
    listed = text.split('class="feed letters"')[1].split("</ol>")[0]
    assert listed.count("<li>") == 4
    assert "changed the weights of qwen" in listed and "v1 90\u00a0%" in listed
    assert "qwen-large" not in listed and "9000" not in listed


def test_more_changes_than_letters_are_marked_and_the_rest_is_told(
    page: Client,
) -> None:
    fleet.model_add("qwen", "v1", "v2")
    for number in range(MARKS_MOST + 4):
        fleet.weights_give("qwen", {"v1": 5000 + number, "v2": 5000 - number})
    layout = charts(page, "/models/qwen/analysis.json")["traffic"]["figure"]["layout"]
    assert [one["text"] for one in layout["annotations"]] == ["A–BH"]
    text = page.get("/models/qwen/analysis").content.decode()
    # Beside the weights: the model, its versions and its first generation.
    assert text.count('class="letter"') == MARKS_MOST
    assert "older changes of this range are not marked" in text


def test_letters_go_on_after_z() -> None:
    assert [letters_of(n) for n in (0, 25, 26, 51, 52)] == ["A", "Z", "AA", "AZ", "BA"]


def test_an_empty_range_says_so_and_hostile_values_are_named(page: Client) -> None:
    fleet.model_add("qwen", "v1")
    assert all(
        one["empty"] for one in charts(page, "/models/qwen/analysis.json").values()
    )
    for value in ("x" * 500, "<script>alert(1)</script>", "9999-99-99", "\ud800"):
        escaped = quote(value.encode("utf-8", "surrogatepass"))
        for name in ("range", "from", "to"):
            response = page.get(f"/models/qwen/analysis?{name}={escaped}")
            assert response.status_code == 200
            assert b'class="error"' in response.content
            assert b"<script>alert" not in response.content
            charts(page, f"/models/qwen/analysis.json?{name}={escaped}")
    for span in ("from=0001-01-01&to=9999-12-31", "from=2026-01-01&to=2025-01-01"):
        charts(page, f"/models/qwen/analysis.json?{span}")
    assert page.get("/models/qwen/analysis.csv?chart=x").status_code == 404
    assert page.get("/models/nobody/analysis.json").status_code == 404


@pytest.mark.parametrize("by", ["day", "team", "key", "model", "version"])
def test_the_charts_of_usage_add_up_to_its_table(page: Client, by: str) -> None:
    now = time.time()
    outcomes.count(
        outcomes.outcome(
            now - n * 20_000,
            team=f"t{n % 9}",
            key=f"k{n % 8}",
            model=f"<b>m{n % 7}",
            version=f"v{n % 6}",
            prompt_tokens=n * 100,
        )
        for n in range(90)
    )
    found = charts(page, f"/usage.json?by={by}&last=30d")
    hours = UsageHour.objects.aggregate(
        requests=Sum("requests"),
        prompt=Sum("prompt_tokens"),
        out=Sum("completion_tokens"),
    )
    sums = Counter(
        {
            name: sum(sum(row[1:]) for row in chart["rows"])
            for name, chart in found.items()
        }
    )
    assert sums["requests"] == hours["requests"]
    assert sums["tokens"] == hours["prompt"] + hours["out"]
    for name, chart in found.items():
        assert len(chart["columns"]) == (2 if by == "day" else 7)
        rows = file_rows(page, f"/usage-chart.csv?by={by}&last=30d&chart={name}")
        assert rows[1:] == [[str(value) for value in row] for row in chart["rows"]]
        assert len(chart["rows"]) == 30
        assert not any("<b>" in one["name"] for one in chart["figure"]["data"])


def test_usage_is_held_against_the_days_before(page: Client) -> None:
    now = time.time()
    outcomes.count([outcomes.outcome(now - 8 * 86_400), outcomes.refused(now - 86_400)])
    note = charts(page, "/usage.json?last=7d")["requests"]["note"]
    assert note == "The same number of days before: 1; this is +0%."
    wide = charts(page, "/usage.json?from=0001-01-01&to=9999-12-31")["requests"]
    assert sum(row[1] for row in wide["rows"]) == 2 and wide["note"] == ""


def test_of_the_plotly_package_only_the_script_is_served() -> None:
    assert finders.find("plotly/plotly.min.js")
    assert not finders.find("plotly/widgetbundle.js")
    names = [name for finder in finders.get_finders() for name, _s in finder.list([])]
    assert [name for name in names if "plotly" in name and name.endswith(".js")] == [
        "plotly.min.js"
    ]
    assert _plain("<b>&") == "&lt;b&gt;&amp;"
