"""What requests say of replicas: real gateways, mock engines, a real Valkey."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from functools import partial
from typing import Any, cast

import pytest

from cluster.health import Admin, Label, Passive, PassiveAxis, states_merge
from cluster.health.failures import (
    FAILURES_KEPT_S,
    failures_name,
    failures_of_hour,
)
from cluster.health.inflight import OpenRequest, inflight_decode, inflight_name
from tests.gateway.scene import NAMES, Scene
from tests.gateway.world import GatewayProcess, read_until

pytestmark = pytest.mark.processes


def seen_by(gateway: GatewayProcess) -> list[str]:
    """The words by which a gateway routes: what it decides acts there at once."""
    return [gateway.state_of(name) for name in NAMES]


def in_panic(gateway: GatewayProcess) -> bool:
    return bool(gateway.request("GET", "/readyz").json["panic"])


def test_fifty_oversize_prompts_leave_the_replica_healthy(scene: Scene) -> None:
    """sglang#25811: 4xx answers opened the breaker and took every key down."""
    gateway = scene.gateways[0]
    refusal = {"error": {"message": "too long", "type": "invalid_request_error"}}
    for engine in scene.engines:
        engine.set(status=400, body=refusal)
    careless = scene.control.key()
    for _ in range(50):
        assert gateway.chat(careless).status == 400
    for engine in scene.engines:
        engine.set(status=None, body=None)
    assert seen_by(gateway) == ["healthy"] * 3
    assert len(scene.served(gateway, 60)) == 3
    assert scene.labels() == [Label.HEALTHY] * 3


def test_saturation_is_no_failure(scene: Scene) -> None:
    gateway = scene.gateways[0]
    for engine in scene.engines:
        engine.set(status=429, headers={"retry-after": "1"})
    assert {gateway.chat(scene.key).status for _ in range(20)} == {429}
    assert seen_by(gateway) == ["healthy"] * 3


def test_clients_that_leave_blame_nobody(scene: Scene) -> None:
    gateway = scene.gateways[0]
    scene.engines[0].set(gap_ms=50)
    for _ in range(12):
        stream = gateway.raw_chat(scene.key, "solo", stream=True, max_tokens=50)
        read_until(stream, b"w1")
        stream.close()
    scene.engines[0].counters_when(lambda counters: counters.running == 0)
    scene.until(lambda: gateway.metric("sluice_in_flight") == 0)
    assert gateway.state_of("solo-v1-1") == "healthy"


def test_five_failures_in_a_row_eject_for_every_gateway(scene: Scene) -> None:
    one, other = scene.gateways
    scene.engines[0].set(status=500)
    # Clients see none of it: each failure is retried on another replica.
    scene.served_until(one, lambda: scene.control.record(NAMES[0]).passive)
    axis = scene.control.record(NAMES[0]).passive
    assert axis is not None and axis.state is Passive.EJECTED
    assert (axis.cause, axis.count) == ("failures_in_a_row", 1)
    assert 30 <= axis.until - axis.since <= 36
    assert scene.labels() == [Label.EJECTED, Label.HEALTHY, Label.HEALTHY]
    scene.until(lambda: scene.state(other, NAMES[0], "ejected") == 1)
    for gateway in (one, other):
        assert NAMES[0] not in scene.served(gateway)


def test_a_change_of_state_reaches_every_gateway_within_a_second(scene: Scene) -> None:
    took_s = []
    for state in (Admin.DISABLED, Admin.ENABLED, Admin.DRAINING, Admin.ENABLED):
        scene.control.admin(NAMES[0], state)
        word = "healthy" if state is Admin.ENABLED else state.value
        took_s.append(
            scene.until(
                lambda w=word: all(seen_by(g)[0] == w for g in scene.gateways)  # type: ignore[misc]
            )
        )
    # Most of them: a busy machine may hold any one up.
    assert statistics.median(took_s) < 1.0


def test_three_replicas_that_fail_often_leave_at_least_two_eligible(
    scene: Scene,
) -> None:
    """envoy#27066: small clusters had everything ejected."""
    gateway = scene.gateways[0]
    for number, engine in enumerate(scene.engines):
        engine.set(fail_rate=0.6, seed=number)
    statuses = Counter(gateway.chat(scene.key).status for _ in range(200))
    assert statuses[503] == 0 and statuses[200] > 50
    scene.until(lambda: Label.SUSPECT in scene.labels())
    records = {name: scene.control.record(name) for name in NAMES}
    states = states_merge(records, now=time.time()).values()
    assert sum(state.eligible for state in states) >= 2
    assert any(state.label is Label.SUSPECT for state in states)
    assert all(state.kept for state in states if state.label is Label.SUSPECT)


def test_a_route_never_loses_its_only_replica_but_says_that_it_is_ill(
    scene: Scene,
) -> None:
    gateway = scene.gateways[0]
    scene.engines[0].set(status=500)
    assert {gateway.chat(scene.key, "solo").status for _ in range(8)} == {502}
    # What a gateway learns reaches the live record beside the traffic.
    scene.until(lambda: scene.control.record("solo-v1-1").passive)
    record = scene.control.record("solo-v1-1")
    state = states_merge({"solo-v1-1": record}, now=time.time())["solo-v1-1"]
    assert (state.label, state.eligible, state.kept) == (Label.SUSPECT, True, True)
    scene.engines[0].set(status=None)
    assert gateway.chat(scene.key, "solo").status == 200
    scene.until(partial(in_panic, gateway))
    assert gateway.request("GET", "/readyz").json["panic"] == ["solo"]


def test_all_ejected_is_panic_and_not_503(scene: Scene) -> None:
    """litellm#25504: with all deployments cooling down, every request failed."""
    now = time.time()
    for number, name in enumerate(NAMES):
        axis = PassiveAxis(Passive.EJECTED, now + number, now + 60, 1, "hang", "d")
        scene.control.passive(name, axis)
    for gateway in scene.gateways:
        scene.until(partial(in_panic, gateway))
        assert len(scene.served(gateway, 60)) == 3


def test_a_trial_that_goes_well_brings_a_replica_back_and_one_that_fails_does_not(
    scene: Scene,
) -> None:
    gateway = scene.gateways[0]
    now = time.time()
    scene.engines[0].set(status=500)
    scene.engines[1].set(tokens=2)
    axis = PassiveAxis(Passive.EJECTED, now - 40, now - 1, 1, "failure_share", "d")
    scene.control.passive(NAMES[0], axis)
    scene.until(lambda: scene.state(gateway, NAMES[0], "half_open") == 1)
    assert gateway.chat(scene.key).status == 200
    scene.until(lambda: scene.labels()[0] is Label.EJECTED)
    again = scene.control.record(NAMES[0]).passive
    assert again is not None
    assert (again.cause, again.count) == ("trial_failed", 2)
    assert again.until - again.since >= 60
    # Its time is over once more, and now it works.
    scene.engines[0].set(status=None)
    scene.control.passive(NAMES[0], axis)
    scene.until(lambda: scene.state(gateway, NAMES[0], "half_open") == 1)
    assert gateway.chat(scene.key).headers["x-sluice-replica"] == NAMES[0]
    scene.until(lambda: scene.labels()[0] is Label.HEALTHY)
    back = scene.control.record(NAMES[0]).passive
    assert back is not None and back.recovered_at > now


def test_without_redis_each_gateway_goes_on_by_its_own_evidence(scene: Scene) -> None:
    one, other = scene.gateways
    assert one.chat(scene.key).status == other.chat(scene.key).status == 200
    scene.control.valkey.kill()
    scene.engines[0].set(status=500)
    scene.until(lambda: not one.request("GET", "/readyz").json["redis"]["up"])
    scene.served_until(one, lambda: scene.state(one, NAMES[0], "ejected") == 1)
    assert NAMES[0] not in scene.served(one)
    assert scene.state(other, NAMES[0], "ejected") == 0
    # It is told as soon as there is somebody to tell.
    scene.control.valkey.start()
    scene.until(lambda: scene.state(other, NAMES[0], "ejected") == 1)


def test_two_gateways_that_eject_at_once_count_one_ejection(scene: Scene) -> None:
    scene.engines[0].set(status=500)
    streams = []
    for gateway in scene.gateways:
        streams += [gateway.raw_chat(scene.key) for _ in range(60)]
    for stream in streams:
        read_until(stream, b"}")
        stream.close()
    # Both have acted and heard of it: nothing more is to come.
    for gateway in scene.gateways:
        scene.until(lambda g=gateway: scene.state(g, NAMES[0], "ejected") == 1)  # type: ignore[misc]
    assert scene.labels()[0] is Label.EJECTED
    axis = scene.control.record(NAMES[0]).passive
    assert axis is not None and axis.count == 1


def test_a_killed_replica_costs_no_request_and_comes_back(scene: Scene) -> None:
    gateway = scene.gateways[0]
    port_kept = scene.engines[0]
    port_kept.kill()
    scene.served(gateway, 30)
    port_kept.start()
    scene.until(lambda: NAMES[0] in scene.served(gateway, 6), within_s=30)


def test_the_open_requests_of_a_draining_replica_are_told_until_the_last_ends(
    scene: Scene,
) -> None:
    gateway = scene.gateways[0]
    scene.engines[0].set(gap_ms=40)
    stream = gateway.raw_chat(scene.key, "solo", stream=True, max_tokens=50)
    read_until(stream, b"w1")
    name = inflight_name(gateway.id)

    def told() -> dict[str, list[OpenRequest]]:
        fields: Any = scene.control.client.hgetall(name)
        return inflight_decode(fields) or {}

    scene.until(lambda: told().get("solo-v1-1"))
    (request,) = told()["solo-v1-1"]
    assert (request.team, request.streamed) == ("demo", True)
    assert request.tokens > 0 and request.age_s >= 0
    scene.control.admin("solo-v1-1", Admin.DRAINING)
    scene.until(lambda: gateway.chat(scene.key, "solo").status == 503)
    assert b"[DONE]" in read_until(stream, b"0\r\n\r\n")
    stream.close()
    scene.until(lambda: "solo-v1-1" not in told())
    assert scene.control.client.ttl(name) > 0


def test_the_end_of_the_last_request_of_a_draining_replica_is_told_at_once(
    scene: Scene,
) -> None:
    """Not with the next second: what is told right before leaves a whole one."""
    gateway = scene.gateways[0]
    name = inflight_name(gateway.id)
    scene.engines[0].set(gap_ms=40, tokens=10_000)

    def age_told_s() -> float:
        fields: Any = scene.control.client.hgetall(name)
        open_ = (inflight_decode(fields) or {}).get("solo-v1-1", [])
        return open_[0].age_s if open_ else 0.0

    took_s = []
    for _ in range(3):
        scene.control.admin("solo-v1-1", Admin.ENABLED)
        scene.until(lambda: gateway.state_of("solo-v1-1") == "healthy")
        stream = gateway.raw_chat(scene.key, "solo", stream=True, max_tokens=10_000)
        read_until(stream, b"w1")
        scene.control.admin("solo-v1-1", Admin.DRAINING)
        scene.until(lambda: gateway.state_of("solo-v1-1") == "draining")
        scene.until(age_told_s)
        before_s = age_told_s()
        scene.until(lambda: age_told_s() > before_s)  # noqa: B023
        stream.close()
        took_s.append(scene.until(lambda: not age_told_s()))
    assert min(took_s) < 0.5


def test_the_failures_of_a_replica_are_counted_by_the_minute(scene: Scene) -> None:
    """Both gateways add to one count, which names only the replica's own failures."""
    control, name = scene.control, failures_name("solo-v1-1")

    def counted() -> int:
        counts = cast("dict[bytes, bytes]", control.client.hgetall(name))
        return failures_of_hour(counts, time.time())

    scene.engines[0].set(status=400, body={"error": {"message": "too long"}})
    for gateway in scene.gateways:
        assert gateway.chat(scene.key, "solo").status == 400
    scene.engines[0].set(status=500, body=None)
    for gateway in scene.gateways * 3:
        assert gateway.chat(scene.key, "solo").status == 502
    scene.until(lambda: counted() >= 6)
    assert counted() == 6
    assert 0 < control.client.ttl(name) <= FAILURES_KEPT_S
