"""Nodes in the management API: the state and what the node said last."""

from __future__ import annotations

import pytest

from cluster import presence
from cluster.actor import SYSTEM
from cluster.services import node_register
from tests.cluster.heartbeats import FACTS, silent
from tests.console.api import Api

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


def test_a_node_is_shown_with_its_state_and_its_facts() -> None:
    api = Api()
    node_register(name="gpu-a", host="10.0.0.7", actor=SYSTEM)
    node = api.get("/nodes/gpu-a")
    assert (node["state"], node["facts"]) == ("never_seen", None)
    presence.presence_beat("gpu-a", holder="a", facts=FACTS)
    [node] = [n for n in api.get("/nodes")["items"] if n["name"] == "gpu-a"]
    assert node["state"] == "reachable" and node["last_heartbeat_age_s"] < 5
    facts = node["facts"]
    assert (facts["cpu_count"], facts["disk"], facts["gpus"]) == (8, "ok", [])
    assert node["rival"] is None
    presence.presence_beat("gpu-a", holder="b", facts=FACTS)
    assert api.get("/nodes/gpu-a")["rival"] == FACTS.host
    silent("gpu-a", 3600)
    node = api.get("/nodes/gpu-a")
    assert node["state"] == "unreachable"
    assert node["last_heartbeat_age_s"] == pytest.approx(3600, abs=5)
    assert node["facts"] == facts
