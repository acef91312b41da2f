"""The pages of the nodes: heard of or not, how full, and how to add one."""

from __future__ import annotations

import msgspec
import pytest
from django.test import Client

from cluster import live, presence
from cluster.health import Process, ProcessAxis
from cluster.health.node import RIVAL_SHOWN_S, SILENT_S, Gpu, node_name
from cluster.models import Node
from cluster.services import node_register
from tests import fleet
from tests.cluster.heartbeats import FACTS, silent

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


def text_of(page: Client, address: str = "/nodes") -> str:
    return page.get(address).content.decode()


def beat(**facts: object) -> None:
    changed = msgspec.structs.replace(FACTS, **facts)
    presence.presence_beat("gpu-a", holder="h", facts=changed)


@pytest.fixture
def node() -> Node:
    return node_register(name="gpu-a", host="10.0.0.7", actor=fleet.ACTOR)


def test_an_empty_list_shows_the_exact_command_to_join(page: Client) -> None:
    text = text_of(page)
    assert "No node yet" in text
    assert "manage.py node join --name gpu-a --host 10.0.0.7" in text


def test_a_node_is_reachable_unreachable_or_was_never_seen(
    page: Client, node: Node
) -> None:
    assert ">Never seen<" in text_of(page)
    beat()
    assert ">Reachable<" in text_of(page)
    assert ">Reachable<" in text_of(page, "/nodes/gpu-a")
    silent("gpu-a", SILENT_S + 1)
    for address in ("/nodes", "/nodes/gpu-a"):
        text = text_of(page, address)
        assert ">Unreachable<" in text and "Nothing was restarted" in text


def test_what_is_scarce_or_wrong_stands_beside_the_state(
    page: Client, node: Node
) -> None:
    beat(clock_offset_s=-3600.0, disk_free_mb=10.0)
    for address in ("/nodes", "/nodes/gpu-a"):
        text = text_of(page, address)
        assert "3600 s behind Redis" in text and "disk of its data directory" in text


def test_two_machines_of_one_name_are_told_where_the_name_is(
    page: Client, node: Node
) -> None:
    beat()
    rival = msgspec.structs.replace(FACTS, host="10.0.0.8", hostname="gpu-twin")
    for replace in (False, True):
        assert presence.presence_beat(
            "gpu-a", holder="other", facts=rival, replace=replace
        )
    for address in ("/nodes", "/nodes/gpu-a"):
        text = text_of(page, address)
        assert "Another machine, gpu-twin at 10.0.0.8, was refused" in text
        assert ">Reachable<" in text and "10.0.0.7" in text
    name = node_name("gpu-a")
    refused_at = presence.redis_time() - RIVAL_SHOWN_S
    live.redis_client().hset(name, "rival_at", str(refused_at))
    assert "gpu-twin" not in text_of(page)


def test_cards_are_listed_and_absent_ones_are_shown_as_absent(
    page: Client, node: Node
) -> None:
    beat(gpus_absent="no_driver")
    assert "no NVIDIA driver answers" in text_of(page, "/nodes/gpu-a")
    card = Gpu(0, "L40S", "GPU-1", memory_total_mb=46_068, memory_used_mb=40_000)
    beat(gpus=[card])
    text = text_of(page, "/nodes/gpu-a")
    assert "40000 / 46068 MiB" in text and "1 card" in text


def test_a_node_names_its_replicas(page: Client) -> None:
    replica = fleet.process_add(
        fleet.model_add("qwen", "v1"), "v1", ProcessAxis(Process.RUNNING, 1.0)
    )
    text = text_of(page, "/nodes/local")
    assert f'href="/replicas/{replica.id}"' in text
    assert 'href="/nodes/local"' in text_of(page, f"/replicas/{replica.id}")


def test_without_redis_nobody_pretends_to_know(
    page: Client, node: Node, redis_away: None
) -> None:
    assert ">Unknown<" in text_of(page)
    assert ">Unknown<" in text_of(page, "/nodes/gpu-a")


def test_an_unknown_node_is_a_404(page: Client) -> None:
    assert page.get("/nodes/nobody").status_code == 404


def test_polls_get_regions_without_controls(page: Client, node: Node) -> None:
    for address in ("/nodes", "/nodes/gpu-a"):
        answer = page.get(address, headers={"HX-Request": "true"})
        text = answer.content.decode()
        for control in ("<input", "<button", "<select", "<form", "<html"):
            assert control not in text
