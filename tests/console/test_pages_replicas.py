from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from django.test import Client

from cluster.health import Probe, Process, ProcessAxis
from cluster.models import Replica, Version
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


def text_of(page: Client, address: str = "/replicas") -> str:
    return page.get(address).content.decode()


@pytest.fixture
def static() -> Replica:
    return fleet.replica_add(fleet.model_add("qwen", "v1"), "v1", 8001)


@pytest.fixture
def process() -> Replica:
    axis = ProcessAxis(
        Process.FAILED,
        time.time() - 5,
        detail="no such file",
        next_try=time.time() + 90,
    )
    return fleet.process_add(fleet.model_add("bge", "v1"), "v1", axis)


def test_each_row_says_state_reason_and_next_try(
    page: Client, static: Replica, process: Replica
) -> None:
    fleet.probe_write(static, Probe.DOWN, "connection refused")
    text = text_of(page)
    assert "mark-err" in text and ">Down<" in text and "connection refused" in text
    assert ">Failed<" in text and "no such file" in text and "Next try:" in text
    assert 'datetime="' in text and "UTC" in text


def test_filters_live_in_the_address(
    page: Client, static: Replica, process: Replica
) -> None:
    text = text_of(page, "/replicas?model=qwen")
    assert static.id in text and process.id not in text
    text = text_of(page, "/replicas?state=failed")
    assert process.id in text and static.id not in text


def test_a_filter_that_hides_everything_says_how_many_it_hides(
    page: Client, static: Replica
) -> None:
    text = text_of(page, "/replicas?state=draining")
    assert "No replica matches" in text and "1 replica exists" in text


def test_a_poll_gets_the_table_with_the_same_filter_and_no_control(
    page: Client, static: Replica
) -> None:
    response = page.get("/replicas?model=qwen", headers={"HX-Request": "true"})
    text = response.content.decode()
    assert 'hx-get="/replicas?model=qwen"' in text and static.id in text
    for control in ("<input", "<button", "<select", "<form", "<html"):
        assert control not in text


def test_two_polls_of_an_unchanged_fleet_are_equal(
    page: Client, static: Replica
) -> None:
    first, second = (
        page.get("/replicas", headers={"HX-Request": "true"}).content for _ in "ab"
    )
    assert first == second


def test_disable_acts_at_once_and_offers_the_way_back(
    page: Client, static: Replica
) -> None:
    done = page.post(f"/replicas/{static.id}/disable")
    text = text_of(page, done["Location"])
    assert f"{static.id} is disabled." in text and "Undo" in text


def test_disturbing_actions_ask_first_with_what_is_known(
    page: Client, static: Replica
) -> None:
    text = text_of(page, f"/replicas/{static.id}?confirm=drain")
    assert 'id="dialog-drain" aria-labelledby="ask-drain" open' in text
    assert "v1 gets 100\u00a0% of the requests." in text
    assert "No other replica of this version is ready." in text
    assert "No request runs on it." in text


def test_a_static_replica_cannot_be_started_here_and_the_page_says_why(
    page: Client, static: Replica
) -> None:
    assert "start and stop it where it runs" in text_of(page, f"/replicas/{static.id}")
    page.post(f"/replicas/{static.id}/stop")
    assert "start and stop it where it runs" in text_of(page, f"/replicas/{static.id}")
    static.refresh_from_db()
    assert static.wanted_running


@pytest.mark.parametrize(
    ("verb", "field", "value"),
    [
        ("drain", "admin_state", "draining"),
        ("stop", "wanted_running", False),
        ("restart", "wanted_start", 2),
    ],
)
def test_actions_do_what_they_say(
    page: Client, process: Replica, verb: str, field: str, value: object
) -> None:
    page.post(f"/replicas/{process.id}/{verb}")
    process.refresh_from_db()
    assert getattr(process, field) == value


def test_a_removed_replica_leaves_the_list_and_keeps_its_page(
    page: Client, static: Replica
) -> None:
    page.post(f"/replicas/{static.id}/remove")
    page.get("/replicas")
    assert f">{static.id}</a>" not in text_of(page)
    assert "This replica was removed" in text_of(page, f"/replicas/{static.id}")


def test_an_unknown_verb_and_a_get_change_nothing(
    page: Client, static: Replica
) -> None:
    assert page.post(f"/replicas/{static.id}/explode").status_code == 404
    assert page.get(f"/replicas/{static.id}/disable").status_code == 405
    static.refresh_from_db()
    assert static.admin_state == "enabled"


def test_a_static_replica_is_added_by_its_address(page: Client) -> None:
    fleet.model_add("qwen", "v1")
    version = Version.objects.get()
    done = page.post(
        "/new/replica", {"version": version.pk, "address": "http://10.0.0.9:8000/"}
    )
    assert done["Location"] == "/replicas/qwen-v1-1"
    assert Replica.objects.get().address == "http://10.0.0.9:8000"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ftp://x", "Write the address like"),
        ("10.0.0.5:8000", "Write the address like"),
        ("http://169.254.169.254", "metadata addresses are refused"),
        ("http://a:b@h:1", "no user name and no password"),
        ("http://h:1/v1", "Leave out the path"),
        ("http://10.0.0.5:8001", "has a replica at this address"),
    ],
)
def test_a_refused_address_is_told_beside_its_field_and_kept(
    page: Client, static: Replica, address: str, words: str
) -> None:
    response = page.post(
        "/new/replica", {"version": static.version_id, "address": address}
    )
    text = response.content.decode()
    assert response.status_code == 422
    error = text.split('id="id_address-error">')[1].split("</p>")[0]
    assert words in error and f'value="{address}"' in text
    assert Replica.objects.count() == 1


def test_a_version_that_does_not_exist_is_refused(
    page: Client, static: Replica
) -> None:
    response = page.post("/new/replica", {"version": 9999, "address": "http://h:1"})
    assert response.status_code == 422


def test_five_hundred_replicas_are_listed_by_a_few_questions_and_soon(
    page: Client, valkey: redis.Redis, django_assert_max_num_queries: Any
) -> None:
    model = fleet.model_add("qwen", "v1")
    version = Version.objects.get(model=model)
    rows = [
        Replica(
            id=f"qwen-v1-{n}",
            version=version,
            number=n,
            driver="static",
            address=f"http://10.0.{n // 250}.{n % 250}:8000",
        )
        for n in range(1, 501)
    ]
    Replica.objects.bulk_create(rows)
    for row in rows:
        fleet.probe_write(row, Probe.UP)
    page.get("/replicas")
    took: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        with django_assert_max_num_queries(12):
            text = text_of(page)
        took.append(time.perf_counter() - began)
    assert text.count("<tr data-figures-of") == 200 and "300 more replicas" in text
    # 200 ms on a quiet machine; a shared one may take three times that.
    assert min(took) < 0.6
