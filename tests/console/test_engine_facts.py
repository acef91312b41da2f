"""What an engine says of itself, on the page of a replica and in the API."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client

from cluster import live
from cluster.health import Probe
from cluster.health.engine_facts import EngineFacts
from cluster.models import Replica
from tests import fleet
from tests.console.api import Api

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def replicas() -> list[Replica]:
    model = fleet.model_add("qwen", "v1")
    return [fleet.replica_add(model, "v1", 9000 + number) for number in range(2)]


def says(replica: Replica, **fields: Any) -> None:
    found = EngineFacts(at=time.time(), version_id=replica.version_id, **fields)
    live.engine_facts_write({replica.id: found})


def text_of(page: Client, replica: Replica, path: str = "") -> str:
    return page.get(f"/replicas/{replica.id}{path}").content.decode()


def test_nothing_is_claimed_of_an_engine_that_was_not_asked(
    page: Client, replicas: list[Replica]
) -> None:
    text = text_of(page, replicas[0])
    assert "Nothing is known of it" in text
    assert "does not list" not in text and "different releases" not in text
    assert Api().get(f"/replicas/{replicas[0].id}")["engine"] is None


def test_release_and_models_are_shown(page: Client, replicas: list[Replica]) -> None:
    one = replicas[0]
    says(one, release="b4242", models=("qwen",), model_count=1, serves_name=True)
    text = text_of(page, one)
    assert "<code>b4242</code>" in text and "<code>qwen</code>" in text
    assert "does not list" not in text
    assert text_of(page, one, "/engine").count("<section") == 1
    engine = Api().get(f"/replicas/{one.id}")["engine"]
    assert engine.pop("asked_at")
    assert engine == {
        "release": "b4242",
        "models": ["qwen"],
        "model_count": 1,
        "serves_name": True,
        "is_current": True,
        "releases_differ": False,
    }


def test_what_is_unknown_is_said_to_be_so(
    page: Client, replicas: list[Replica]
) -> None:
    says(replicas[0])
    text = text_of(page, replicas[0])
    assert "release unknown" in text and "does not list" not in text
    engine = Api().get("/replicas")["items"][0]["engine"]
    assert [engine[name] for name in ("release", "models", "model_count")] == [None] * 3
    assert engine["serves_name"] is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"models": ("a", "<b>"), "model_count": 30},
            ("a, &lt;b&gt;", "(30 in all)"),
        ),
        ({"models": ()}, ("It lists no model.",)),
    ],
)
def test_a_served_name_that_the_engine_does_not_list_is_told_plainly(
    page: Client,
    replicas: list[Replica],
    fields: dict[str, Any],
    words: tuple[str, ...],
) -> None:
    one = replicas[0]
    says(one, **fields, serves_name=False)
    text = text_of(page, one)
    assert "Its engine does not list the served name qwen of its version." in text
    assert all(word in text for word in words)
    poll = page.get(f"/replicas/{one.id}", headers={"HX-Request": "true"})
    assert "does not list the served name" in poll.content.decode()


def test_an_answer_of_the_past_is_shown_as_such_and_warns_of_nothing(
    page: Client, replicas: list[Replica]
) -> None:
    says(replicas[0], release="1", models=(), serves_name=False, is_current=False)
    says(replicas[1], release="2")
    text = text_of(page, replicas[0])
    assert "It does not answer any more." in text
    assert "does not list" not in text and "different releases" not in text


def test_different_releases_within_a_version_are_told_on_each_replica(
    page: Client, replicas: list[Replica]
) -> None:
    api = Api()
    for number, one in enumerate(replicas, start=1):
        says(one, release=f"0.{number}.0")
    for one in replicas:
        assert "different releases of their engine" in text_of(page, one)
        assert "0.1.0, 0.2.0" in text_of(page, one)
    rows = api.get("/replicas")["items"]
    assert [row["engine"]["releases_differ"] for row in rows] == [True, True]
    assert [row["engine"]["release"] for row in rows] == ["0.1.0", "0.2.0"]


def test_the_page_of_a_model_names_the_releases_of_each_version(
    page: Client, replicas: list[Replica]
) -> None:
    def text() -> str:
        return page.get("/models/qwen").content.decode()

    assert "different releases" not in text()
    for one in replicas:
        says(one, release="0.1.0")
    assert text().count("<code>0.1.0</code>") == 1
    assert "different releases" not in text()
    says(replicas[1], release="0.2.0")
    assert "<code>0.2.0</code>" in text()
    assert "Its replicas run on different releases." in text()


def test_without_redis_nothing_is_known_of_the_engine(
    page: Client, replicas: list[Replica], redis_away: None
) -> None:
    assert "Nothing is known of it" in text_of(page, replicas[0])
    assert page.get("/models/qwen").status_code == 200


def test_a_removed_replica_warns_of_nothing(
    page: Client, replicas: list[Replica]
) -> None:
    one = replicas[0]
    fleet.probe_write(one, Probe.UP)
    says(one, release="1", models=(), serves_name=False)
    page.post(f"/replicas/{one.id}/remove")
    text = text_of(page, one)
    assert "does not list" not in text and "What its engine says" not in text
