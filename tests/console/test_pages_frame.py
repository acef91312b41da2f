"""What every page shares: zone, shortcuts, and the pages that say what failed."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime

import pytest
import redis
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template import Context, Template
from django.test import Client, RequestFactory

from console.accounts.models import User
from console.help import TOPICS
from console.logs import JsonFormatter
from console.request_id import RequestIdFilter, request_id_give
from tests import outcomes

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


def test_every_instant_is_in_the_zone_of_who_looks(page: Client, user: User) -> None:
    (one,) = outcomes.keep(
        outcomes.outcome(datetime(2026, 3, 1, 20, tzinfo=UTC).timestamp())
    )
    assert "2026-03-01 20:00:00 UTC" in page.get(f"/requests/{one}").content.decode()
    user.time_zone = "Asia/Shanghai"
    user.save()
    text = page.get(f"/requests/{one}").content.decode()
    assert "2026-03-02 04:00:00 UTC+8" in text
    assert 'datetime="2026-03-01T20:00:00Z"' in text


def test_single_letters_can_be_turned_off(page: Client, user: User) -> None:
    text = page.get("/teams").content.decode()
    assert "data-shortcuts=" not in text
    assert re.findall(r'data-go="(\w)"', text) == list("omrntquw")
    user.shortcuts = False
    user.save()
    text = page.get("/teams").content.decode()
    assert 'data-shortcuts="off"' in text and "are off for your account" in text


def test_every_answer_has_an_id_that_no_client_chooses(page: Client) -> None:
    first, second = (
        page.get("/livez", headers={"X-Request-Id": "mine"})["X-Request-Id"]
        for _ in range(2)
    )
    assert re.fullmatch("[0-9a-f]{32}", first) and first != second


def test_a_missing_page_names_its_request(page: Client) -> None:
    response = page.get("/no/such/page")
    assert response.status_code == 404
    text = response.content.decode()
    assert f'id="failed-id">{response["X-Request-Id"]}<' in text
    assert 'data-copy-from="failed-id"' in text and 'href="/search"' in text


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (RuntimeError("odd"), 500, "This is a fault of the console"),
        (OperationalError("gone"), 503, "The database does not answer"),
        (redis.ConnectionError("gone"), 503, "Redis does not answer"),
    ],
)
def test_a_failure_says_what_it_is_and_where_the_log_has_it(
    user: User,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    status: int,
    words: str,
) -> None:
    def fail(**_options: object) -> None:
        raise error

    monkeypatch.setattr("console.pages.search.searched_words", fail)
    client = Client(raise_request_exception=False)
    client.force_login(user)
    with caplog.at_level(logging.ERROR, "django.request"):
        response = client.get("/search?q=x")
    assert response.status_code == status
    text = response.content.decode()
    assert words in text and response["X-Request-Id"] in text
    assert ("Retry-After" in response.headers) == (status == 503)


def test_a_log_line_carries_the_id_of_its_request(page: Client) -> None:
    lines = []

    def answer(_request: HttpRequest) -> HttpResponseBase:
        record = logging.LogRecord("x", logging.INFO, "", 0, "m", (), None)
        RequestIdFilter().filter(record)
        lines.append(json.loads(JsonFormatter().format(record)))
        return HttpResponse()

    response = request_id_give(answer)(RequestFactory().get("/"))
    assert lines[0]["request_id"] == response["X-Request-Id"]


def test_a_form_without_its_token_says_that_nothing_is_lost(user: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    response = client.post("/new/team", {"name": "x"})
    assert response.status_code == 403
    assert "what you typed is still there" in response.content.decode()


@pytest.mark.parametrize("name", TOPICS)
def test_every_topic_of_help_says_something_and_can_be_opened(name: str) -> None:
    text = Template('{% load sluice %}{% help_on "' + name + '" %}').render(Context())
    assert (
        f'popovertarget="hint-{name}"' in text and f'id="hint-{name}" popover' in text
    )
    assert str(TOPICS[name].text)[:20] in text.replace("&#x27;", "'")
