"""What holds on every page: hostile words stay words, and lists cost what they cost."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from cluster.health import Probe, Process, ProcessAxis
from cluster.models import AuditRecord, Model, Version
from cluster.services import node_register, version_create
from console.accounts.models import User
from console.accounts.services import token_issue
from console.pages.urls import urlpatterns
from routing.models import ApiKey, Team
from routing.services import key_issue, team_create
from tests import fleet, outcomes
from tests.looks import WRITES, Cast, looks, looks_missing
from tests.minutes import minutes_count

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

HOSTILE = "\"'><script>alert(1)</script>{{ 7*7 }}\u202e" + "W" * 60


def test_hostile_words_are_shown_as_words(page: Client) -> None:
    model = fleet.model_add("qwen", "v1", "v2", description=HOSTILE)
    Version.objects.filter(used_at=None, name="v2").update(
        description=HOSTILE, params={"a": HOSTILE}, served_name=HOSTILE
    )
    replica = fleet.replica_add(model, "v1", 8001)
    fleet.probe_write(replica, Probe.DOWN, HOSTILE)
    fleet.weights_give("qwen", {"v1": 9000, "v2": 1000}, reason=HOSTILE)
    team = team_create(slug="t", name=HOSTILE, actor=fleet.ACTOR)
    key_issue(team=team, name=HOSTILE, actor=fleet.ACTOR)
    fleet.gateway_set("g<script>")
    shown = 0
    for address in (
        "/",
        "/models",
        "/models/qwen",
        "/models/qwen/traffic",
        "/replicas",
        f"/replicas/{replica.id}",
        "/teams",
        "/teams/t",
        "/gateways",
        "/replicas?model=%22%3E%3Cscript%3Ealert(1)&state=%3Cscript%3E",
    ):
        text = page.get(address).content.decode()
        assert "<script>alert" not in text and "g<script>" not in text, address
        assert "49\u202e" not in text
        shown += "&lt;script&gt;alert(1)" in text
    assert shown == 7


def test_a_zero_byte_in_an_address_is_no_page(page: Client) -> None:
    for address in ("/models/a%00b", "/replicas/%00", "/replicas?model=%00"):
        assert page.get(address).status_code == 404


QUERIES = ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")
BUDGET = Path(__file__).parent / "query_budget.toml"


def cast_fill() -> Cast:
    """A small cluster with one of everything that a page may be about."""
    fleet.fleet_fill()
    key = ApiKey.objects.get()
    # In a minute that is over: an empty one is asked about twice.
    at = time.time() - 70
    made = outcomes.outcome(at, team="search", key=key.pk, model="qwen3-8b")
    outcomes.keep(made)
    outcomes.count([made])
    minutes_count([made])
    return Cast(
        *("qwen3-8b", "v1", "qwen3-8b-v2-2", "qwen3-8b-v1-1", "local"),
        *("search", key.pk, made.request_id, "ada"),
    )


def grow(cast: Cast) -> None:
    """More of everything, also of what the cast is about."""
    model = Model.objects.get(name=cast.model)
    for number in range(10, 16):
        version_create(
            model=model,
            name=f"v{number}",
            engine="generic",
            served_name="q",
            actor=fleet.ACTOR,
        )
        fleet.replica_add(fleet.model_add(f"qwen-{number}", "v1"), "v1", 8000)
        fleet.replica_add(model, "v1", 9000 + number)
        fleet.process_add(model, "v1", ProcessAxis(Process.STARTING, time.time()))
        fleet.weights_give(cast.model, {"v1": 10_000 - number, "v2": number})
        node_register(name=f"node-{number}", actor=fleet.ACTOR)
        team = team_create(slug=f"team-{number}", actor=fleet.ACTOR)
        for each in (team, Team.objects.get(slug=cast.team)):
            key_issue(team=each, name=f"k{number}", actor=fleet.ACTOR)
        user = User.objects.create_user(f"user-{number}", role="viewer")
        user.leads.add(team)
        owner = User.objects.get(username=cast.user)
        token_issue(user=owner, name=f"t{number}", actor=fleet.ACTOR)
        made = [
            outcomes.outcome(
                time.time() - n,
                team=team.slug,
                key=f"k{number}",
                model=cast.model,
                version=f"v{n}",
                replica=f"{cast.model}-v1-{n}",
            )
            for n in range(1, 4)
        ]
        outcomes.keep(*made)
        outcomes.count(made)
        minutes_count(made)


def queries_most(page: Client, cast: Cast) -> dict[str, int]:
    """By route the queries of the look that needs the most, with what is remembered
    for some seconds at hand and all gateways up to date."""
    found: dict[str, int] = {}
    fleet.gateway_set("local-1")
    fleet.gateway_set("local-2")
    for look in looks(cast):
        look.ask(page)
        # What is remembered may have run out just before one of the two.
        counts = []
        for _again in range(2):
            with CaptureQueriesContext(connection) as queries:
                answer = look.ask(page)
            # How a transaction is bounded and planned is a matter of each database.
            counts.append(sum(q["sql"].startswith(QUERIES) for q in queries))
        missing = look.args == ("0" * 32,)
        assert answer.status_code in ((404,) if missing else (200, 202)), str(look)
        found[look.route] = max(found.get(look.route, 0), min(counts))
    return found


def test_every_page_keeps_its_budget_of_queries_however_much_there_is(
    page: Client,
) -> None:
    """The budgets stand in ``query_budget.toml``, one line for each page."""
    budget = tomllib.loads(BUDGET.read_text("utf-8"))
    cast = cast_fill()
    few = queries_most(page, cast)
    grow(cast)
    many = queries_most(page, cast)
    assert {name: n for name, n in many.items() if n > few[name]} == {}
    assert {name: n for name, n in many.items() if n > budget.get(name, -1)} == {}
    assert budget.keys() == few.keys()


def test_every_page_there_is_is_looked_at(page: Client) -> None:
    cast = Cast(*["a"] * len(Cast._fields))
    assert looks_missing(cast) == set()
    arguments = {"model": "m", "row": "1"}
    for pattern in urlpatterns:
        if pattern.name in WRITES:
            names = pattern.pattern.converters
            values = {name: arguments.get(name, "a") for name in names}
            address = reverse(str(pattern.name), kwargs=values)
            # Django's choice of a language takes nothing and leads back.
            refused = 302 if pattern.name == "language" else 405
            assert page.get(address).status_code == refused, address


FORMS = (
    ("/new/team", {"slug": "search", "name": "Search"}, "/teams/search"),
    ("/new/model", {"name": "qwen", "kind": "chat"}, "/models/qwen"),
    (
        "/models/bge/new-version",
        {"name": "v2", "engine": "generic", "served_name": "bge"},
        "/models/bge",
    ),
    ("/new/replica", {"address": "http://10.0.0.9:8000"}, "/replicas"),
)


@pytest.mark.parametrize(("address", "values", "shown"), FORMS)
def test_a_form_sent_twice_makes_one_thing_and_leads_to_it(
    page: Client, address: str, values: dict[str, str], shown: str
) -> None:
    model = fleet.model_add("bge", "v1")
    if address == "/new/replica":
        values = values | {"version": str(model.versions.get().pk)}
    opened = page.get(address).context["once"]
    first = page.post(address, values | {"once": opened})
    records = AuditRecord.objects.count()
    second = page.post(address, values | {"once": opened}, follow=True)
    assert first.status_code == 302 and second.redirect_chain == [(shown, 302)]
    assert "nothing was made twice" in second.content.decode()
    assert AuditRecord.objects.count() == records
    # The same again from a fresh form is meant so, and told what is wrong with it.
    fresh = page.get(address).context["once"]
    assert page.post(address, values | {"once": fresh}).status_code == 422
