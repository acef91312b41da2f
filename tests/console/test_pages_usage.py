"""Usage on its page, in its file and on the page of a team."""

from __future__ import annotations

import csv
import re
import time
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from urllib.parse import quote

import pytest
from django.test import Client
from django.utils import timezone

from routing.models import UsageHour
from tests import fleet, outcomes

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

DAY_S = 86_400


def text_of(page: Client, address: str = "/usage") -> str:
    response = page.get(address)
    assert response.status_code == 200
    return response.content.decode()


def numbers(text: str, place: str) -> list[list[int]]:
    """Requests and the token columns of each row of the table's part."""
    part = text.split(f"<{place}>")[1].split(f"</{place}>")[0]
    rows = []
    for row in part.split("<tr>")[1:]:
        cells = re.findall(r'class="num">(.*?)</td>', row)
        plain = [re.sub(r"<.*?>|[≈, ]", "", cell) for cell in cells]
        rows.append([int(plain[place]) for place in (0, 2, 3, 4, 5)])
    return rows


def fill() -> None:
    now = time.time()
    outcomes.count(
        outcomes.outcome(
            now - n * DAY_S / 4,
            team=["search", "ads", "ops"][n % 3],
            key=f"k{n % 5}",
            model=["qwen", "bge"][n % 2],
            prompt_tokens=1000 + n,
            completion_tokens=n,
            estimated=n == 3,
        )
        for n in range(40)
    )
    outcomes.count([outcomes.refused(now - DAY_S)])


@pytest.mark.parametrize("by", ["day", "team", "key", "model", "version"])
def test_the_total_is_the_sum_of_the_rows(page: Client, by: str) -> None:
    fill()
    text = text_of(page, f"/usage?by={by}")
    rows = numbers(text, "tbody")
    assert [sum(column) for column in zip(*rows, strict=True)] == numbers(
        text, "tfoot"
    )[0]
    assert numbers(text, "tfoot")[0][0] == 41
    assert "≈" in text and "estimated for 1 request" in text
    assert "2.4\u00a0%" in text.split("<tfoot>")[1]


def test_groups_beyond_the_first_hundred_are_one_row_that_adds_up(
    page: Client,
) -> None:
    now = time.time()
    outcomes.count(
        outcomes.outcome(now, team=f"t{n}", prompt_tokens=n) for n in range(130)
    )
    text = text_of(page, "/usage?by=team")
    rows = numbers(text, "tbody")
    assert len(rows) == 101 and "30 others" in text
    assert sum(row[0] for row in rows) == numbers(text, "tfoot")[0][0] == 130


def test_today_is_marked_as_not_over_and_the_zone_is_stated(page: Client) -> None:
    now = time.time()
    outcomes.count([outcomes.outcome(now - n * DAY_S) for n in range(3)])
    text = text_of(page)
    assert text.count("until now</span>") == 1
    assert "Days are those of the zone UTC. Today is counted until now." in text
    yesterday = timezone.now().astimezone(UTC).date() - timedelta(1)
    past = text_of(page, f"/usage?from=2026-01-01&to={yesterday}")
    assert "until now" not in past


def test_the_span_is_chosen_by_name_or_by_days(page: Client) -> None:
    now = datetime.now(UTC)
    outcomes.count(
        outcomes.outcome((now - timedelta(days)).timestamp(), duration_ms=0.0)
        for days in (0, 3, 20, 60, 200)
    )
    for query, expected in (
        ("last=1d", 1),
        ("range=7d", 2),
        ("", 3),
        ("last=90d", 4),
        ("last=365d", 5),
        (f"from={(now - timedelta(60)).date()}&to={(now - timedelta(3)).date()}", 3),
        ("from=0001-01-01&to=9999-12-31", 5),
    ):
        assert numbers(text_of(page, f"/usage?{query}"), "tfoot")[0][0] == expected


def test_a_row_leads_closer_and_a_filter_can_be_taken_off(page: Client) -> None:
    fill()
    text = text_of(page, "/usage?by=team&last=90d")
    assert 'href="?by=key&amp;range=90d&amp;team=search"' in text
    closer = text_of(page, "/usage?by=key&last=90d&team=search")
    assert 'class="on" href="?by=key&amp;range=90d"' in closer
    assert "ads" not in closer.split("<tbody>")[1]


def test_keys_are_shown_with_their_names(page: Client) -> None:
    _team, key = fleet.team_with_key("search")
    outcomes.count([outcomes.outcome(time.time(), key=key.id)])
    text = text_of(page, "/usage?by=key")
    assert f">{key.id}</a>" in text and "nightly-report" in text


def test_an_empty_page_says_whether_there_is_usage_elsewhere(page: Client) -> None:
    assert "No usage yet" in text_of(page)
    fill()
    assert "No usage in this span" in text_of(page, "/usage?team=nobody")


def test_the_file_holds_every_part_and_nothing_that_runs(page: Client) -> None:
    fill()
    outcomes.count([outcomes.refused(model='=HYPERLINK("http://x")')])
    response = page.get("/usage.csv?last=90d")
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert "attachment" in response["Content-Disposition"]
    rows = list(csv.DictReader(StringIO(response.content.decode())))
    assert sum(int(row["requests"]) for row in rows) == 42
    total = sum(UsageHour.objects.values_list("prompt_tokens", flat=True))
    assert sum(int(row["prompt_tokens"]) for row in rows) == total
    assert {row["model"] for row in rows} >= {'\'=HYPERLINK("http://x")', "qwen"}
    assert date.fromisoformat(rows[0]["day"]) <= date.fromisoformat(rows[-1]["day"])
    filtered = page.get("/usage.csv?last=90d&team=ads").content.decode()
    assert "search" not in filtered and "ads" in filtered
    assert page.get("/usage.csv?last=x").status_code == 422


def test_the_page_of_a_team_has_its_last_days_in_a_line(page: Client) -> None:
    fleet.team_with_key("search")
    fill()
    text = text_of(page, "/teams/search")
    assert "The last 30 days: 14 requests" in re.sub(r"\s+", " ", text)
    assert "by=key&amp;team=search" in text


@pytest.mark.parametrize(
    "name", ["range", "last", "from", "to", "zone", "by", "team", "key", "model"]
)
def test_hostile_values_are_named_or_find_nothing(page: Client, name: str) -> None:
    fill()
    for value in (
        "'; DROP TABLE x; --",
        "<script>alert(1)</script>",
        "x" * 5000,
        "9999-99-99",
        "-1",
        "\ud800",
    ):
        escaped = quote(value.encode("utf-8", "surrogatepass"))
        response = page.get(f"/usage?{name}={escaped}")
        assert response.status_code == 200
        assert b"<script>alert" not in response.content
        assert page.get(f"/usage.csv?{name}={escaped}").status_code in (200, 422)
    backwards = text_of(page, "/usage?from=2026-02-02&to=2026-01-01")
    assert "lies before the beginning" in backwards
