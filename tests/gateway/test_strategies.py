"""Every strategy on the wire: three engines behind two gateways."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from cluster.health.load import LOADS, Load
from routing.contracts.outcome import Why
from routing.contracts.route import RouteSettings, settings_decode
from tests.gateway.scene import NAMES, Scene, scene_open
from tests.gateway.world import CHAT, GatewayProcess, apply, route

pytestmark = [pytest.mark.processes]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_open(tmp_path_factory.mktemp("scene")) as scene:
        yield scene


def given(scene: Scene, engines: int = 3, **settings: Any) -> None:
    """One route over the engines, with these settings at both gateways."""
    addresses = [engine.address for engine in scene.engines[:engines]]
    entry = route("m", {"v1": (10_000, addresses)}, **settings)
    for gateway in scene.gateways:
        apply(scene.control, gateway, entry)


def served(
    scene: Scene,
    gateway: GatewayProcess,
    headers: dict[str, str] | None = None,
    key: str = "",
    **fields: Any,
) -> str:
    """Which replica serves a request, which must go well."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields
    reply = gateway.request("POST", CHAT, key or scene.key, body, headers)
    assert reply.status == 200, reply.body
    return reply.headers["x-sluice-replica"]


def test_round_robin_goes_round(scene: Scene) -> None:
    given(scene, strategy="round_robin")
    for gateway in scene.gateways:
        turns = [served(scene, gateway) for _ in range(9)]
        assert set(turns[:3]) == set(NAMES)
        assert turns[:3] * 3 == turns


def test_least_in_flight_takes_the_one_with_nothing_to_do(scene: Scene) -> None:
    given(scene, strategy="least_inflight")
    gateway = scene.gateways[0]
    for engine in scene.engines:
        engine.set(delay_headers_ms=60_000)
    waiting = [gateway.raw_chat(scene.key) for _ in range(2)]
    gateway.wait_for(lambda: sum(e.counters().running for e in scene.engines) == 2)
    busy = [n for n, e in enumerate(scene.engines) if e.counters().running]
    assert len(busy) == 2
    (idle,) = {0, 1, 2} - set(busy)
    scene.engines[idle].set(delay_headers_ms=0)
    assert {served(scene, gateway) for _ in range(6)} == {NAMES[idle]}
    for connection in waiting:
        connection.close()
    gateway.wait_for(lambda: gateway.metric("sluice_in_flight") == 0)
    for engine in scene.engines:
        engine.reset()


def test_requests_of_a_key_stay_together_at_every_gateway(scene: Scene) -> None:
    given(scene, strategy="consistent_hash")
    found: Counter[str] = Counter()
    for _key in range(12):
        key = scene.control.key()
        places = {served(scene, g, key=key) for g in scene.gateways for _ in range(3)}
        assert len(places) == 1
        found.update(places)
    assert len(found) > 1


@pytest.mark.parametrize(
    ("settings", "one", "other"),
    [
        (
            {"hash_on": "header", "hash_header": "X-Session-Id"},
            {"headers": {"x-session-id": "{}"}},
            {"headers": {"x-session-id": "{}", "x-other": "1"}},
        ),
        ({"hash_on": "user"}, {"user": "{}"}, {"user": "{}", "temperature": 0.5}),
        (
            {"hash_on": "conversation"},
            {"messages": [{"role": "user", "content": "{}"}]},
            {
                "messages": [
                    {"role": "user", "content": "{}"},
                    {"role": "assistant", "content": "Yes?"},
                    {"role": "user", "content": "Go on."},
                ]
            },
        ),
    ],
    ids=["header", "user", "conversation"],
)
def test_what_belongs_together_stays_together(
    scene: Scene, settings: dict[str, Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    given(scene, strategy="consistent_hash", **settings)
    first, second = scene.gateways
    found = set()
    for number in range(12):
        places = {
            served(scene, first, **_filled(one, f"s{number}")),
            served(scene, second, **_filled(one, f"s{number}")),
            served(scene, first, **_filled(other, f"s{number}")),
        }
        assert len(places) == 1
        found |= places
    assert found == set(NAMES)
    # Without it, requests go by their key, and so to one place.
    assert len({served(scene, g, messages=[]) for g in scene.gateways}) == 1


def _filled(fields: Any, text: str) -> Any:
    if isinstance(fields, dict):
        return {name: _filled(value, text) for name, value in fields.items()}
    if isinstance(fields, list):
        return [_filled(value, text) for value in fields]
    return text if fields == "{}" else fields


def test_a_conversation_goes_where_its_beginning_was_before(scene: Scene) -> None:
    given(scene, strategy="prefix_affinity")
    first, second = scene.gateways
    found = set()
    for number in range(12):
        messages = [{"role": "user", "content": f"{number}: " + "Tell me. " * 80}]
        where = served(scene, first, messages=messages)
        # What one gateway has not seen yet, it sends where the other one does.
        assert served(scene, second, messages=messages) == where
        messages += [
            {"role": "assistant", "content": "Yes? " * 200},
            {"role": "user", "content": "Go on."},
        ]
        assert {served(scene, g, messages=messages) for g in scene.gateways} == {where}
        found.add(where)
    assert found == set(NAMES)
    reply = first.request("POST", CHAT, scene.key, {"model": "m", "messages": messages})
    choice = first.outcome(reply.headers["x-request-id"]).attempts[-1].choice
    assert choice is not None and choice.why is Why.PREFIX


@pytest.mark.parametrize(
    "body",
    [b'{"model":"m","messages":7}', b'{"model":"m","messages":[[]],"user":{}}'],
    ids=["no list", "no messages"],
)
@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "prefix_affinity"},
        {"strategy": "consistent_hash", "hash_on": "conversation"},
        {"strategy": "consistent_hash", "hash_on": "user"},
    ],
    ids=["prefix", "conversation", "user"],
)
def test_a_body_of_another_shape_is_for_the_engine_to_judge(
    scene: Scene, settings: dict[str, Any], body: bytes
) -> None:
    given(scene, **settings)
    reply = scene.gateways[0].request("POST", CHAT, scene.key, body)
    assert "x-sluice-replica" in reply.headers


def test_the_engine_that_says_it_has_more_room_is_taken(scene: Scene) -> None:
    given(scene, strategy="queue_aware", engines=2)
    gateway = scene.gateways[0]
    for roomy, full in (NAMES[:2], NAMES[1::-1]):
        loads = {
            roomy: Load(time.time(), running=3, waiting=0, kv_cache=0.4),
            full: Load(time.time(), running=3, waiting=9, kv_cache=0.4),
        }
        scene.control.client.hset(
            LOADS,
            mapping={name: msgspec.json.encode(one) for name, one in loads.items()},
        )
        gateway.wait_for(
            lambda roomy=roomy: {served(scene, gateway) for _ in range(5)} == {roomy}  # type: ignore[misc]
        )
    # An engine that cannot be asked counts as full.
    lost = msgspec.json.encode(Load(time.time(), error="refused"))
    scene.control.client.hset(LOADS, NAMES[1], lost)
    gateway.wait_for(lambda: {served(scene, gateway) for _ in range(5)} == {NAMES[0]})
    choice = gateway.outcomes()[-1].attempts[-1].choice
    assert choice is not None and choice.why is Why.LOWER_PRESSURE


def test_the_outcome_says_that_it_was_the_hash(scene: Scene) -> None:
    given(scene, strategy="consistent_hash")
    gateway = scene.gateways[0]
    reply = gateway.chat(scene.key)
    choice = gateway.outcome(reply.headers["x-request-id"]).attempts[-1].choice
    assert choice is not None and choice.why is Why.HASH


def test_a_header_without_a_name_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.hash_header"):
        settings_decode({"hash_on": "header"})
    for name in ("x y", "x\n", "é", "x" * 65):
        with pytest.raises(msgspec.ValidationError):
            settings_decode({"hash_on": "header", "hash_header": name})
    assert settings_decode({}) == RouteSettings()
