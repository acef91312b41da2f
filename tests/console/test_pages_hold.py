"""What holds on every page: hostile words stay words, and lists cost what they cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cluster.health import Probe
from cluster.models import AuditRecord, Model, Version
from cluster.services import version_create
from routing.services import key_issue, team_create
from tests import fleet

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


def query_count(page: Client, address: str) -> int:
    """Queries of a page whose gateways are up to date, seen for the second time."""
    fleet.gateway_set("local-1")
    fleet.gateway_set("local-2")
    page.get(address)
    with CaptureQueriesContext(connection) as queries:
        assert page.get(address).status_code == 200
    return len(queries)


def more_versions(model: Model) -> None:
    for number in range(10, 16):
        version_create(
            model=model,
            name=f"v{number}",
            engine="generic",
            served_name="q",
            actor=fleet.ACTOR,
        )


def more_replicas(model: Model) -> None:
    for port in range(9000, 9012):
        fleet.replica_add(model, "v1", port)


def more_models(_model: Model) -> None:
    for number in range(6):
        fleet.replica_add(fleet.model_add(f"m{number}", "v1"), "v1", 8000)


def more_generations(_model: Model) -> None:
    for weight in range(1, 8):
        fleet.weights_give("qwen3-8b", {"v1": 10_000 - weight, "v2": weight})


def more_keys(_model: Model) -> None:
    team = team_create(slug="other", actor=fleet.ACTOR)
    for number in range(8):
        key_issue(team=team, name=f"k{number}", actor=fleet.ACTOR)


@pytest.mark.parametrize(
    ("address", "grow", "most"),
    [
        ("/", more_models, 19),
        ("/", more_replicas, 19),
        ("/models", more_models, 12),
        ("/models/qwen3-8b", more_versions, 14),
        ("/models/qwen3-8b/traffic", more_generations, 18),
        ("/models/qwen3-8b/traffic", more_versions, 18),
        ("/replicas", more_replicas, 12),
        ("/replicas/qwen3-8b-v1-1", more_replicas, 14),
        ("/new/replica", more_models, 12),
        ("/teams", more_keys, 6),
        ("/teams/search", more_keys, 11),
        ("/keys?q=k", more_keys, 8),
        ("/gateways", more_generations, 8),
    ],
)
def test_the_number_of_queries_does_not_grow_with_the_rows(
    page: Client, address: str, grow: Callable[[Model], None], most: int
) -> None:
    model = fleet.fleet_fill()
    few = query_count(page, address)
    grow(model)
    many = query_count(page, address)
    assert many == few <= most


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
