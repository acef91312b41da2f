"""The list of requests, and one request, without a browser."""

from __future__ import annotations

import itertools
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
import redis
from django.test import Client
from django.utils import timezone

from cluster import live
from cluster.health.inflight import OpenRequest, inflight_fields, inflight_name
from cluster.models import Replica, ReplicaTransition
from routing.contracts.outcome import Attempt, Choice, Ending, Tier, Why
from routing.models import OutcomeRecord, TelemetryCursor, TelemetrySource
from routing.selectors import outcomes as selector
from tests import fleet, outcomes

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


def text_of(page: Client, address: str = "/requests", status: int = 200) -> str:
    response = page.get(address)
    assert response.status_code == status
    return response.content.decode()


def ids_of(text: str) -> list[str]:
    return re.findall(r'id="q-([0-9a-f]{32})"', text)


def link(text: str, name: str) -> str:
    found = re.search(f'id="page-{name}" class="button"[^>]* href="([^"]+)"', text)
    assert found, name
    return "/requests" + found[1].replace("&amp;", "&")


def test_each_row_says_who_what_where_and_how_it_ended(page: Client) -> None:
    (served,) = outcomes.keep(outcomes.outcome(estimated=True), slow=True)
    outcomes.keep(outcomes.refused())
    text = text_of(page)
    row = text.split(f'id="q-{served}"')[1].split("</tr>")[0]
    for words in ("search", "k1", "qwen", "v1", "qwen-v1-1", "2 attempts", "200"):
        assert words in row
    assert "Completed" in row and "slow" in row and "100, 40" in row
    assert "≈" in row and "210\u00a0ms" in row and "1.25\u00a0s" in row
    assert "Refused" in text and "invalid_api_key" in text


def test_pages_go_to_the_oldest_and_back(page: Client) -> None:
    now = time.time()
    made = outcomes.keep(*(outcomes.outcome(now - n) for n in range(120)))
    first = text_of(page)
    second = text_of(page, link(first, "older"))
    third = text_of(page, link(second, "older"))
    assert ids_of(first) + ids_of(second) + ids_of(third) == made
    assert 'id="page-older"' not in third and 'id="page-newer"' not in first
    assert ids_of(text_of(page, link(third, "newer"))) == ids_of(second)
    # Above the second page lies the first one, which goes on by itself.
    back = page.get(link(second, "newer"), follow=True)
    assert ids_of(back.content.decode()) == ids_of(first)
    assert "hx-get" in first and "hx-get" not in second


def test_the_first_page_from_below_is_the_one_that_goes_on_by_itself(
    page: Client,
) -> None:
    made = outcomes.keep(*(outcomes.outcome(1e9 + n) for n in range(3)))
    response = page.get(f"/requests?team=search&after={made[1]}")
    assert response.status_code == 302
    assert response["Location"] == "/requests?team=search"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("team=search", "abc"),
        ("team=ads", "d"),
        ("key=k2", "b"),
        ("model=bge", "c"),
        ("version=v2", "c"),
        ("replica=r9", "b"),
        ("status=503", "b"),
        ("status=5xx", "b"),
        ("status=4", "d"),
        ("ending=refused", "d"),
        ("slow=1", "a"),
        ("range=1h", "abcd"),
        ("from=2001-01-01&to=2002-01-01", "e"),
        ("from=2001-09-09T01:46:40Z&to=2001-09-09T03:46:41%2B02:00", "e"),
        ("team=search&ending=completed&slow=1", "a"),
        ("team=%20search%20&version=v1", "ab"),
        ("", "abcde"),
    ],
)
def test_filters_live_in_the_address(page: Client, query: str, expected: str) -> None:
    now = time.time()
    (a,) = outcomes.keep(outcomes.outcome(now), slow=True)
    broken = {"status": 503, "ending": Ending.UPSTREAM_FAILED, "key": "k2"}
    b, c, d, e = outcomes.keep(
        outcomes.outcome(now, **broken, replica="r9"),
        outcomes.outcome(now, model="bge", version="v2"),
        outcomes.refused(now, team="ads", status=429, code="queue_full"),
        outcomes.outcome(1e9, team="old", version="v1"),
    )
    names = {a: "a", b: "b", c: "c", d: "d", e: "e"}
    found = ids_of(text_of(page, f"/requests?{query}"))
    assert "".join(sorted(names[one] for one in found)) == expected


def test_each_filter_in_force_has_a_way_to_take_it_off(page: Client) -> None:
    outcomes.keep(outcomes.outcome())
    text = text_of(page, "/requests?team=search&model=qwen&slow=1&last=24h")
    chips = re.findall(r'<a href="/requests\?([^"]*)"', text)
    assert len(chips) == 4
    assert "range=24h&amp;team=search&amp;model=qwen" in chips
    assert "the last 24 hours" in text and 'class="all" href="/requests"' in text


def test_an_empty_list_says_whether_filters_hide_something(page: Client) -> None:
    assert "No request yet" in text_of(page)
    assert "There is no request at all yet" in text_of(page, "/requests?team=x")
    outcomes.keep(outcomes.outcome())
    text = text_of(page, "/requests?team=nobody")
    assert "No request matches" in text and "the filters hide" in text


def test_a_rare_combination_is_searched_in_steps_that_are_told(
    page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selector, "_CHUNK_FIRST", 5)
    monkeypatch.setattr(selector, "SEARCH_S", -1.0)
    now = time.time()
    made = outcomes.keep(
        *(outcomes.outcome(now - n) for n in range(8)),
        outcomes.outcome(now - 9, version="v9"),
    )
    text = text_of(page, "/requests?version=v9")
    assert "None found so far" in text and "Everything was searched back to" in text
    assert "Search on" in text and ids_of(text) == []
    text = text_of(page, link(text, "older"))
    assert ids_of(text) == [made[-1]]


def test_a_poll_gets_the_rows_with_the_same_filter_and_no_control(
    page: Client,
) -> None:
    outcomes.keep(outcomes.outcome())
    first = page.get("/requests?team=search", headers=POLL).content.decode()
    assert 'hx-get="/requests?team=search"' in first and len(ids_of(first)) == 1
    for control in ("<input", "<button", "<select", "<form", "<html"):
        assert control not in first
    again = page.get("/requests?team=search", headers=POLL).content.decode()
    assert first == again


@pytest.mark.parametrize("written", ["{}", "  {}\n", "x-request-id: {}", "{}".upper()])
def test_an_id_is_found_whatever_the_filters_and_however_it_is_pasted(
    page: Client, written: str
) -> None:
    (one,) = outcomes.keep(outcomes.outcome(1.0))
    text = quote(written.format(one))
    response = page.get(f"/requests?team=nobody&last=1h&find={text}")
    assert response["Location"] == f"/requests/{one}"
    dashed = f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}"
    response = page.get(f"/requests?find={dashed.upper()}")
    assert response["Location"] == f"/requests/{one}"
    assert one in text_of(page, f"/requests/{one}")


def test_what_is_no_id_is_told_and_the_list_stays(page: Client) -> None:
    made = outcomes.keep(outcomes.outcome())
    text = text_of(page, "/requests?find=hello")
    assert "32 hexadecimal digits" in text and 'value="hello"' in text
    assert ids_of(text) == made


POLL = {"HX-Request": "true"}

HOSTILE = [
    "'; DROP TABLE routing_outcomerecord; --",
    '"><script>alert(1)</script>',
    "%s%n{}{0}",
    "\u202e\U0001f600\ufffe",
    "x" * 5000,
    "-1",
    "9" * 40,
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2026-13-45",
    "f" * 32,
    "\ud800",
]
FIELDS = ("last", "from", "to", "team", "key", "model", "version", "replica")
MORE_FIELDS = ("status", "ending", "slow", "before", "after", "find")


@pytest.mark.parametrize("name", FIELDS + MORE_FIELDS)
def test_hostile_values_are_named_or_find_nothing(page: Client, name: str) -> None:
    outcomes.keep(outcomes.outcome())
    for value in HOSTILE:
        escaped = quote(value.encode("utf-8", "surrogatepass"))
        response = page.get(f"/requests?{name}={escaped}")
        assert response.status_code in (200, 302), (name, value)
        assert b"<script>alert" not in response.content
        assert page.get(f"/requests/{escaped or 'x'}").status_code in (404, 302)
    assert page.get(f"/requests?{name}=%00").status_code == 404
    assert page.get(f"/requests?{name}=a&{name}=b").status_code == 200
    assert OutcomeRecord.objects.count() == 1


def test_a_value_that_is_not_understood_is_named(page: Client) -> None:
    text = text_of(page, "/requests?status=abc&ending=odd&last=1y&from=x&slow=2")
    assert text.count("was not understood and is left out") == 3
    assert "“x” is no time" in text and "no such span: “1y”" in text


def test_the_page_of_a_request_tells_the_whole_story(page: Client) -> None:
    model = fleet.model_add("qwen", "v1", "v2")
    for port in (8001, 8002):
        fleet.replica_add(model, "v1", port)
    Replica.objects.update(created_at=timezone.now() - timedelta(days=1))
    ill = Replica.objects.get(pk="qwen-v1-2")
    hour_ago = timezone.now() - timedelta(hours=1)
    ReplicaTransition.objects.create(
        replica=ill, at=hour_ago, label="ejected", cause="failures_in_a_row"
    )
    ReplicaTransition.objects.create(
        replica=ill, at=timezone.now() + timedelta(hours=1), label="healthy", cause="x"
    )
    (one,) = outcomes.keep(outcomes.outcome())
    text = text_of(page, f"/requests/{one}")
    assert "Completed after 1.25\u00a0s" in text
    assert "v1 on qwen-v1-1 served it. 1 attempt failed." in text
    for phase in (
        *("Receive the request", "Check the key", "Route it", "Wait in the queue"),
        *("Wait for the first byte", "Prefill", "Decode", "Deliver", "Not accounted"),
    ):
        assert phase in text
    assert "v1 was drawn with a probability of 95\u00a0%, and served." in text
    assert "2 of 3 replicas of v1 were ready." in text
    assert "qwen-v1-2 cost 1 and qwen-v1-1 2" in text
    assert "qwen-v1-1 was the only one to take" in text
    assert ">Ejected<" in text and ">Healthy<" not in text and "not on record" in text
    assert 'href="/models/qwen/traffic#history-title">3</a>' in text
    for fact in ("10.0.0.7", "gw-1", "64 from the cache", "the engine", "9,000"):
        assert fact in text
    assert 'data-copy-from="request-id"' in text and " style=" not in text


def test_every_choice_has_its_words(page: Client) -> None:
    for tier, why in itertools.product(Tier, Why):
        choice = Choice(tier, why, 2, 5, 1.5, "qwen-v1-3", 2.5)
        attempt = Attempt("qwen-v1-1", "v1", duration_ms=5.0, choice=choice)
        (one,) = outcomes.keep(outcomes.outcome(attempts=(attempt,)))
        text = text_of(page, f"/requests/{one}")
        told = text.split('<ol class="attempts">')[1].split("</ol>")[0]
        sentences = re.findall(r'<p class="why">([^<]+)</p>', told)
        assert len(sentences) == (1 if why is Why.TRIAL else 2)
        assert not any("%" in sentence for sentence in sentences)


@pytest.mark.parametrize("ending", list(Ending))
def test_every_ending_has_its_verdict(page: Client, ending: Ending) -> None:
    (one,) = outcomes.keep(outcomes.outcome(ending=ending, code="upstream_error"))
    text = text_of(page, f"/requests/{one}")
    assert "after 1.25\u00a0s</h2>" in text and "The replica failed." in text


def test_a_version_that_was_drawn_and_could_not_serve_is_told(page: Client) -> None:
    one, two, three = outcomes.keep(
        outcomes.outcome(first_version="v2", first_probability=0.05),
        outcomes.outcome(chosen=True, first_probability=1.0),
        outcomes.outcome(status=502, ending=Ending.UPSTREAM_FAILED),
    )
    text = text_of(page, f"/requests/{one}")
    assert "v2 was drawn with a probability of 5\u00a0%. No replica of it" in text
    assert "so it went to v1." in text
    assert "The client chose v1 itself." in text_of(page, f"/requests/{two}")
    failed = text_of(page, f"/requests/{three}")
    assert "v1 was drawn with a probability of 95\u00a0%." in failed
    assert "and served" not in failed


def test_a_request_that_reached_no_replica_has_a_page_too(page: Client) -> None:
    (one,) = outcomes.keep(outcomes.refused())
    text = text_of(page, f"/requests/{one}")
    assert "It had no key, or one that is unknown" in text
    assert "No replica was tried." in text
    assert "It did not come to the draw of a version." in text


def test_a_row_of_another_release_is_shown_as_far_as_it_is_understood(
    page: Client,
) -> None:
    (one,) = outcomes.keep(outcomes.outcome())
    OutcomeRecord.objects.update(body=b'{"future": true}', ending="evaporated")
    assert "evaporated" in text_of(page)
    assert "written by another release" in text_of(page, f"/requests/{one}")


def test_an_answer_in_one_piece_has_no_speed_of_decoding(page: Client) -> None:
    stream, whole = outcomes.keep(outcomes.outcome(), outcomes.outcome(streamed=False))
    assert "37.5 per second" in text_of(page, f"/requests/{stream}")
    assert "per second" not in text_of(page, f"/requests/{whole}")


def test_replicas_models_and_teams_lead_to_their_requests(page: Client) -> None:
    fleet.replica_add(fleet.model_add("qwen", "v1"), "v1", 8001)
    fleet.team_with_key("search")
    for address, query in (
        ("/replicas/qwen-v1-1", "replica=qwen-v1-1"),
        ("/models/qwen", "model=qwen"),
        ("/teams/search", "team=search"),
    ):
        assert f'href="/requests?{query}"' in text_of(page, address)


def test_an_outcome_full_of_nonsense_has_a_page(page: Client) -> None:
    nonsense = "a/b\0<b>\u202e"
    attempt = Attempt(nonsense, nonsense, error=nonsense, duration_ms=-1.0, at_ms=1e300)
    facts = ("model", "team", "key", "version", "replica", "path", "client", "code")
    texts: dict[str, Any] = dict.fromkeys(
        (*facts, "first_version", "gateway"), nonsense
    )
    wild = outcomes.outcome(
        **texts,
        attempts=(attempt, attempt),
        duration_ms=1e11,
    )
    row = outcomes.row(wild)
    for name in ("model", "team", "version", "replica", "code", "gateway"):
        setattr(row, name, "a/b<b>")
    row.first_version, row.key = "", "a/b"
    row.save()
    for address in ("/requests", f"/requests/{wild.request_id}"):
        text = text_of(page, address)
        assert "a/b&lt;b&gt;" in text and "a/b<b>" not in text


def test_an_unknown_id_says_what_is_known(page: Client) -> None:
    now = time.time()
    outcomes.keep(outcomes.outcome(now - 3600))
    at = datetime.fromtimestamp(now, UTC)
    TelemetryCursor.objects.create(moved_at=at)
    TelemetrySource.objects.create(gateway="a", lost=7, lost_at=at + timedelta(1))
    TelemetrySource.objects.create(gateway="b", unfinished=2, closed_at=at)
    TelemetrySource.objects.create(gateway="c", lost=50, lost_at=at - timedelta(9))
    young = outcomes.request_id(now - 5)
    text = text_of(page, f"/requests/{young}", 404)
    assert "It may still be open" in text and 'hx-trigger="every 3s"' in text
    assert "7 outcomes were" in text and "2 requests did" in text
    old = text_of(page, f"/requests/{outcomes.request_id(now - 90_000)}", 404)
    assert "older than everything that is kept" in old and "every 3s" not in old
    future = text_of(page, f"/requests/{outcomes.request_id(now + 90_000)}", 404)
    assert "no gateway made it" in future
    assert "no gateway made it" in text_of(page, f"/requests/{'f' * 32}", 404)


def test_a_request_that_is_still_open_is_told_and_its_page_comes_by_itself(
    page: Client, valkey: redis.Redis
) -> None:
    one = outcomes.request_id(time.time() - 3600)
    fleet.gateway_set("g1")
    open_ = {"qwen-v1-1": [OpenRequest(one, "search", 3600.0, True, 9)]}
    fields: Any = inflight_fields(open_)
    live.redis_client().hset(inflight_name("g1"), mapping=fields)
    text = text_of(page, f"/requests/{one}", 404)
    assert "It has not ended" in text and 'href="/replicas/qwen-v1-1"' in text
    assert page.get(f"/requests/{one}", headers=POLL).status_code == 204
    outcomes.keep(outcomes.outcome(request_id=one))
    assert page.get(f"/requests/{one}", headers=POLL)["HX-Refresh"] == "true"


def test_fifty_rows_cost_as_many_queries_as_one(
    page: Client, django_assert_max_num_queries: Any
) -> None:
    outcomes.keep(*(outcomes.outcome() for _n in range(60)))
    page.get("/requests")
    with django_assert_max_num_queries(14):
        page.get("/requests?team=search&status=200")


def test_the_list_works_while_redis_is_away(page: Client, redis_away: None) -> None:
    (one,) = outcomes.keep(outcomes.outcome())
    assert ids_of(text_of(page)) == [one]
    assert "Completed" in text_of(page, f"/requests/{one}")
    assert "What is known" in text_of(page, f"/requests/{'0' * 32}", 404)


def test_a_key_is_called_by_its_name_as_long_as_there_is_one(page: Client) -> None:
    _team, key = fleet.team_with_key("search")
    outcomes.keep(outcomes.outcome(team="search", key=key.id))
    outcomes.keep(outcomes.outcome(team="search", key="gone"))
    text = page.get("/requests").content.decode()
    assert f'<bdi title="{key.id}">nightly-report</bdi>' in text
    assert "<code>gone</code>" in text
