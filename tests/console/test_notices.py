"""What is wrong beside the traffic: pages, ``/readyz`` and metrics say the same."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest
import redis
from django.test import Client
from django.utils import timezone, translation

from console.notices import Notice, notices
from console.status import TOKENS
from routing.contracts import names
from routing.models import TelemetrySource
from routing.selectors import Alarm

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def trouble(valkey: redis.Redis) -> None:
    """Everything at once, but for Redis, which could not tell then."""
    now = timezone.now()
    for number in range(8):
        TelemetrySource.objects.create(
            gateway=f"gw-{number}",
            lost=number,
            lost_at=now - timedelta(minutes=5),
            unfinished=1,
            closed_at=now,
        )
    late = int((time.time() - 90) * 1000)
    valkey.xadd(names.OUTCOMES, {"any": "thing"}, id=f"{late}-0")
    valkey.set(names.OUTCOMES_BYTES, 77)
    valkey.set(names.INGEST_TROUBLE, "<disk> is full at db.internal")


def shown(page: Client) -> int:
    """Banners of a page, without those that wait for a script."""
    html = page.get("/teams").content.decode()
    return len(re.findall(r'<p class="banner banner-\w+">', html))


def by_code() -> dict[str, Notice]:
    found = notices()
    assert all(notice.token in TOKENS for notice in found)
    return {notice.code: notice for notice in found}


def test_nothing_is_said_while_nothing_is_wrong(
    valkey: redis.Redis, page: Client
) -> None:
    assert notices() == []
    assert shown(page) == 0


@pytest.mark.usefixtures("trouble")
def test_each_trouble_has_a_sentence_with_its_figures() -> None:
    found = by_code()
    assert set(found) == {
        *("database", "outcomes_late", "outcomes_lost", "requests_unfinished")
    }
    assert found["outcomes_lost"].title == (
        "28 outcomes of requests were lost, the last 5 min ago."
    )
    assert "gw-7 (7), gw-6 (6)" in found["outcomes_lost"].text
    assert "gw-1" not in found["outcomes_lost"].text
    assert "the oldest for 9" in found["outcomes_late"].title
    assert "8 requests" in found["requests_unfinished"].title


@pytest.mark.usefixtures("trouble")
def test_a_page_shows_them_and_readyz_tells_no_secrets(page: Client) -> None:
    assert shown(page) == 4
    html = page.get("/teams").content.decode()
    assert "&lt;disk&gt; is full at db.internal" in html
    response = Client().get("/readyz")
    assert response.status_code == 200
    warnings = {w["code"]: w["detail"] for w in response.json()["warnings"]}
    assert {code: warnings[code] for code in by_code()} == {
        code: notice.title for code, notice in by_code().items()
    }
    text = response.content.decode()
    assert "db.internal" not in text and "gw-" not in text


@pytest.mark.usefixtures("trouble")
def test_sentences_are_there_in_chinese() -> None:
    with translation.override("zh-hans"):
        for notice in notices():
            assert not notice.title.isascii() and not notice.text.isascii()


@pytest.mark.usefixtures("trouble")
def test_metrics_count_the_same() -> None:
    text = Client().get("/metrics").content.decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines()]
    found = {name: value for name, value in lines if name.startswith("sluice_outcomes")}
    alarms = {a: found[f'sluice_outcomes_alarm{{alarm="{a.value}"}}'] for a in Alarm}
    assert alarms == {alarm: str(int(alarm is not Alarm.REDIS)) for alarm in Alarm}
    assert 89 <= int(found["sluice_outcomes_lag_seconds"]) <= 150
    assert found["sluice_outcomes_stream_bytes"] == "77"
    assert found["sluice_outcomes_lost"] == "28"
    assert found["sluice_outcomes_unfinished"] == "8"
    assert found["sluice_outcomes_foreign"] == "0"


@pytest.mark.usefixtures("redis_away")
def test_without_redis_pages_say_so_and_figures_that_lie_there_are_left_out(
    page: Client,
) -> None:
    assert list(by_code()) == ["redis"]
    assert "Redis does not answer." in page.get("/teams").content.decode()
    text = Client().get("/metrics").content.decode()
    assert 'sluice_outcomes_alarm{alarm="redis"} 1' in text
    assert "sluice_outcomes_lag_seconds" not in text
    assert "sluice_outcomes_lost 0" in text
