"""The search: what it finds, how much of it, and what it says of what it does not."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from cluster.models import Replica
from console.accounts.models import User
from tests import fleet, outcomes

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


def found(page: Client, query: str) -> dict[str, list[str]]:
    """The addresses of the hits by group."""
    response = page.get("/search", {"list": "", "q": query})
    assert response.status_code == 200
    groups = {}
    for part in response.content.decode().split('<div role="group"')[1:]:
        name = re.search(r'aria-labelledby="hits-(\w+)"', part)
        assert name
        groups[name[1]] = re.findall(r'role="option"[^>]* href="([^"]+)"', part)
    return groups


def test_everything_is_found_by_a_part_of_its_name(page: Client) -> None:
    team, key = fleet.team_with_key("search")
    model = fleet.model_add("qwen3-8b", "v1", "v2")
    replica = fleet.replica_add(model, "v1", 9001)
    assert found(page, "QWEN3") == {
        "models": ["/models/qwen3-8b"],
        "replicas": [f"/replicas/{replica.id}"],
    }
    assert found(page, "qwen v2")["versions"] == ["/models/qwen3-8b"]
    assert found(page, "10.0.0.5:9001")["replicas"] == [f"/replicas/{replica.id}"]
    assert found(page, team.slug)["teams"] == ["/teams/search"]
    for text in (key.id, f"sk-{key.id}", key.last_four, key.name):
        assert found(page, text)["keys"] == [f"/keys/{key.id}"], text


def test_a_request_is_found_over_all_time_and_leads_straight_there(
    page: Client,
) -> None:
    (old,) = outcomes.keep(outcomes.outcome(1e9))
    assert found(page, f"x-request-id: {old}")["requests"] == [f"/requests/{old}"]
    response = page.get("/search", {"q": f" {old.upper()} "})
    assert response.status_code == 302
    assert response["Location"] == f"/requests/{old}"
    unknown = uuid4().hex
    text = page.get("/search", {"list": "", "q": unknown}).content.decode()
    assert "not kept" in text and f"/requests/{unknown}" in text


def test_a_group_shows_eight_and_says_that_there_are_more(page: Client) -> None:
    for n in range(10):
        fleet.model_add(f"model-{n}")
    assert len(found(page, "model-")["models"]) == 8
    text = page.get("/search", {"q": "model-"}).content.decode()
    assert text.count('href="/models/model-') == 8 and "more than are shown" in text


def test_an_empty_box_offers_the_pages_and_nothing_says_what_was_searched(
    page: Client,
) -> None:
    assert "/replicas" in found(page, "")["pages"]
    assert found(page, "new") == {"pages": ["/new/model", "/new/replica", "/new/team"]}
    text = page.get("/search", {"q": "nobody-is-called-so"}).content.decode()
    assert "Nothing found" in text and "request ids of all time" in text


def test_who_may_not_begin_something_reads_why(client: Client) -> None:
    client.force_login(User.objects.create_user("bob", role="viewer"))
    text = client.get("/search", {"list": "", "q": "Add a team"}).content.decode()
    assert "Needs the role admin; yours is viewer." in text


@pytest.mark.parametrize(
    "query", ["%", "_", "'; DROP TABLE x; --", "<script>alert(1)</script>", "x" * 5000]
)
def test_hostile_words_find_nothing_and_are_escaped(page: Client, query: str) -> None:
    fleet.model_add("qwen", "v1")
    for extra in ({}, {"list": ""}):
        response = page.get("/search", {"q": query} | extra)
        assert response.status_code == 200
        assert b"<script>alert" not in response.content
    assert "models" not in found(page, query)


@pytest.mark.django_db(transaction=True)
def test_a_search_asks_a_bounded_number_of_questions(
    page: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    fleet.fleet_fill()
    with django_assert_max_num_queries(14):
        page.get("/search", {"list": "", "q": "qwen"})


def test_a_removed_replica_is_found_by_its_whole_id_only(page: Client) -> None:
    replica = fleet.replica_add(fleet.model_add("qwen", "v1"), "v1", 9001)
    Replica.objects.filter(pk=replica.pk).update(removed_at=timezone.now())
    assert "replicas" not in found(page, replica.id[:-1])
    assert found(page, replica.id)["replicas"] == [f"/replicas/{replica.id}"]
