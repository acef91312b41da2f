from __future__ import annotations

import time

import pytest
from django.test import Client

from cluster import live
from routing.models import Revision
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


def text_of(page: Client, address: str = "/gateways") -> str:
    return page.get(address).content.decode()


def test_each_gateway_says_what_it_applies(page: Client) -> None:
    fleet.model_add("qwen", "v1", "v2")
    fleet.gateway_set("g-ahead")
    fleet.gateway_set("g-behind", revision=1)
    text = text_of(page)
    assert "Up to date" in text and "Behind" in text
    assert "version qwen v2 created" in text


def test_each_gateway_says_whether_it_draws_by_the_weights(page: Client) -> None:
    fleet.model_add("qwen", "v1", "v2")
    fleet.weights_give("qwen", {"v1": 9000, "v2": 1000})
    for name in ("g-good", "g-bad", "g-new"):
        fleet.gateway_set(name)
    fleet.draws_set("g-good", "qwen", {"v1": 9000, "v2": 1000})
    assert "10,000 draws" in text_of(page) and "Nothing to check" in text_of(page)
    assert "Weights do not hold" not in text_of(page)
    fleet.draws_set("g-bad", "qwen", {"v1": 200})
    text = text_of(page)
    assert text.count("Weights do not hold") == 1
    assert "Gateway g-bad: v2 was drawn for 0\u00a0% of 200 requests" in text
    assert 'href="/models/qwen/traffic"' in text


def test_without_gateways_and_revisions_the_page_says_so(page: Client) -> None:
    text = text_of(page)
    assert "No gateway is running" in text and "Nothing was published yet." in text


def test_a_gateway_that_died_leaves_the_list(page: Client) -> None:
    fleet.gateway_set("g-dead", started_at=time.time())
    live.redis_client().delete("sluice:gateway:g-dead")
    assert "g-dead" not in text_of(page)


def test_older_revisions_are_a_page_further(page: Client) -> None:
    Revision.objects.bulk_create(
        Revision(
            number=number,
            epoch=1,
            body=b"{}",
            digest="",
            reason=f"why {number}.",
            actor="x",
        )
        for number in range(1, 56)
    )
    first = text_of(page)
    assert "why 55." in first and "why 5." not in first
    assert 'href="?before=6"' in first
    second = text_of(page, "/gateways?before=6")
    assert "why 5." in second and "why 6." not in second and "Newest" in second
    for junk in ("x", "-1", "9" * 40, "\u0663"):
        assert page.get("/gateways", {"before": junk}).status_code == 200
