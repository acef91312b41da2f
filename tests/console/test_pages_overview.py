from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from cluster.health import Probe
from cluster.models import Version
from cluster.services import replica_create
from console.accounts.models import User
from routing.models import TrafficMinute, UsageHour
from routing.selectors.pulse import pulse_list
from routing.services import key_issue, team_create
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


def text_of(page: Client, address: str = "/") -> str:
    return page.get(address).content.decode()


def minute_add(
    ago_min: int, ending: str, requests: int, model: str = "qwen", **figures: int
) -> None:
    minute = timezone.now().replace(second=0, microsecond=0)
    TrafficMinute.objects.create(
        minute=minute - timedelta(minutes=ago_min),
        gateway="g", model=model, generation=1, first_version="v1", share_bp=10_000,
        chosen=False, version="v1", team="t", key="k", ending=ending,
        requests=requests, **figures,
    )  # fmt: skip


def test_the_pulse_of_a_model_is_that_of_its_exact_counts(page: Client) -> None:
    fleet.model_add("qwen", "v1")
    minute_add(1, "completed", 30, completion_tokens=600, ttft_ms=900, ttft_count=30)
    minute_add(2, "timed_out", 10)
    minute_add(2, "client_left", 10)
    # Neither the running minute nor one of more than an hour ago.
    minute_add(0, "completed", 1000)
    minute_add(61, "completed", 1000)
    minute_add(1, "refused", 5, model="")
    pulse = pulse_list()["qwen"]
    assert (pulse.per_minute, pulse.requests) == (10.0, 50)
    assert (pulse.error_share, pulse.ttft_ms) == (0.2, 30.0)
    assert pulse.tokens_per_s == 2.0
    assert pulse.points[-2:] == [20, 30] and sum(pulse.points) == 50
    text = text_of(page)
    assert "20.0\u00a0%" in text and "status=5xx" in text and "<polyline" in text


def test_what_needs_a_person_is_listed_the_worst_first_with_where_to_look(
    page: Client,
) -> None:
    model = fleet.model_add("qwen", "v1", "v2")
    good, ill = (fleet.replica_add(model, "v1", port) for port in (8001, 8002))
    assert "Nothing: no replica" in text_of(page)
    fleet.probe_write(ill, Probe.DOWN, "refused")
    text = text_of(page).partition("What needs you")[2].partition("</section>")[0]
    assert f'href="/replicas/{ill.id}"' in text and good.id not in text
    fleet.probe_write(good, Probe.DOWN, "refused")
    team = team_create(slug="t", name="", actor=fleet.ACTOR)
    soon = timezone.now() + timedelta(days=2)
    key_issue(team=team, name="k", expires_at=soon, actor=fleet.ACTOR)
    text = text_of(page).partition("What needs you")[2].partition("</section>")[0]
    assert "no replica that is ready" in text and "state=expiring" in text
    assert text.index("mark-err") < text.index("mark-warn")


def test_the_first_screen_costs_the_same_queries_for_one_model_and_for_many(
    page: Client,
) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            page.get("/")
        return len(queries)

    for n in range(12):
        model = fleet.model_add(f"m{n}", "v1")
        fleet.replica_add(model, "v1", 8000 + n)
        minute_add(1, "completed", 3, model=f"m{n}")
        if n == 0:
            page.get("/")
            one = cost()
    assert cost() == one


def test_an_empty_cluster_shows_the_first_steps(page: Client) -> None:
    text = text_of(page)
    assert "Nothing is served yet." in text
    assert 'href="/new/model"' in text


def test_steps_are_ticked_off_by_what_exists_and_leave_when_all_are_done(
    page: Client,
) -> None:
    model = fleet.model_add("qwen")
    assert 'href="/models/qwen/new-version"' in text_of(page)
    fleet.model_add("bge", "v1")
    fleet.replica_add(fleet.model_add("m", "v1"), "v1", 8000)
    assert text_of(page).count('class="done"') == 3
    fleet.team_with_key()
    assert "Send a first request" in text_of(page)
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    used = {"team": "t", "key": "k", "model": "m", "version": "v1"}
    UsageHour.objects.create(hour=hour, ending="completed", requests=1, **used)
    assert "First steps" not in text_of(page)
    assert model.name in text_of(page)


def test_trouble_comes_first_and_is_said_in_words(page: Client) -> None:
    fleet.fleet_fill()
    good = fleet.model_add("a-good-one", "v1")
    fleet.replica_add(good, "v1", 9000)
    text = text_of(page)
    assert "1 of 3 models needs attention." in text
    assert "qwen3-8b: v1: 2 of 3 replicas are ready." in text
    assert text.index(">qwen3-8b</a>") < text.index(">a-good-one</a>")


def test_without_a_gateway_nobody_can_call_anything(page: Client) -> None:
    fleet.replica_add(fleet.model_add("qwen", "v1"), "v1", 8000)
    assert "No gateway is running." in text_of(page)
    fleet.gateway_set("g1")
    assert "1 model serves, all is well." in text_of(page)


def test_a_change_on_its_way_is_told(page: Client) -> None:
    fleet.replica_add(fleet.model_add("qwen", "v1"), "v1", 8000)
    fleet.gateway_set("g1", revision=1)
    text = text_of(page)
    assert "a change is on its way" in text
    assert "0 of 1 gateways at revision" in text


def test_what_was_served_stands_beside_what_is_wanted(page: Client) -> None:
    fleet.fleet_fill()
    for address in ("/", "/models", "/models/qwen3-8b"):
        text = text_of(page, address)
        assert "v1 <b>81.67\u00a0%</b>" in text and "of 982 requests" in text, address


def test_requests_that_are_not_split_as_wanted_come_first(page: Client) -> None:
    fleet.fleet_fill()
    fleet.draws_set("local-1", "qwen3-8b", {"v1": 500})
    text = text_of(page)
    assert "Requests are not split as wanted." in text
    assert "Gateway local-1: v2 was drawn for 0\u00a0% of 500 requests" in text
    assert text.count("Weights do not hold") == 1


def test_what_changed_names_actor_and_object(page: Client) -> None:
    fleet.fleet_fill()
    text = text_of(page)
    assert "changed the weights of qwen3-8b" in text
    assert "v1 80\u00a0%, v2 20\u00a0%" in text


def test_a_poll_gets_the_live_part_only(page: Client) -> None:
    fleet.fleet_fill()
    text = page.get("/", headers={"HX-Request": "true"}).content.decode()
    assert text.startswith('<div id="overview-live"')
    assert "<html" not in text and "What changed" not in text


@pytest.mark.usefixtures("redis_away")
def test_without_redis_every_page_answers_and_says_unknown(page: Client) -> None:
    fleet.model_add("qwen", "v1", "v2")
    replica_create(
        version=Version.objects.get(name="v1"),
        driver="static",
        address="http://10.0.0.5:1",
        actor=fleet.ACTOR,
    )
    team_create(slug="t", actor=fleet.ACTOR)
    for address in (
        "/",
        "/models",
        "/models/qwen",
        "/models/qwen/traffic",
        "/replicas",
        "/replicas/qwen-v1-1",
        "/teams/t",
        "/gateways",
    ):
        response = page.get(address)
        assert response.status_code == 200, address
        assert "Redis does not answer." in response.content.decode(), address
    assert "Unknown" in text_of(page, "/replicas")


def test_who_leads_a_team_is_led_to_it(user: User, page: Client) -> None:
    assert "You lead:" not in page.get("/").content.decode()
    team, _key = fleet.team_with_key("search")
    User.objects.filter(pk=user.pk).update(role="viewer")
    assert "read only" in page.get("/").content.decode()
    user.leads.add(team)
    text = page.get("/").content.decode()
    assert "You lead:" in text and 'href="/teams/search"' in text
    assert "team lead" in text and "read only" not in text


def test_what_needs_somebody_says_since_when(page: Client) -> None:
    model = fleet.model_add("qwen", "v1")
    replica = fleet.replica_add(model, "v1", 8001, probe=Probe.DOWN)
    need = next(one for one in page.get("/").context["needs"] if one.what == replica.id)
    assert time.time() - 70 < need.since < time.time() - 60
