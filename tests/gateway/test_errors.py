"""Every row of the contract's error table that exists, against real processes."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from cluster.health import Admin, Probe
from routing.contracts.outcome import Ending
from tests.fakes.engine import MockEngine
from tests.gateway import world
from tests.gateway.world import (
    CHAT,
    ControlPlane,
    GatewayProcess,
    Reply,
    apply,
    route,
)

pytestmark = pytest.mark.processes
Engines = tuple[MockEngine, MockEngine]


@pytest.fixture
def gateway(
    control: ControlPlane, engines: Engines, shared_gateway: GatewayProcess
) -> GatewayProcess:
    """Model ``m`` on two replicas; ``solo`` on one; ``vectors`` embeds."""
    one, other = engines[0].address, engines[1].address
    for replica in ("m-v1-1", "m-v1-2", "solo-v1-1", "vectors-v1-1", "ranks-v1-1"):
        control.admin(replica, Admin.ENABLED)
        control.probe(replica)
    apply(
        control,
        shared_gateway,
        route(
            "m",
            {"v1": (10_000, [one, other])},
            timeouts={"first_content_s": 0.5, "idle_s": 0.5},
        ),
        route(
            "solo",
            {"v1": (10_000, [one])},
            timeouts={"first_content_s": 0.5, "total_s": 1},
        ),
        route("vectors", {"v1": (10_000, [one])}, kind="embedding"),
        route("ranks", {"v1": (10_000, [one])}, kind="rerank"),
        route("empty", {}),
    )
    return shared_gateway


def ended(gateway: GatewayProcess, reply: Reply) -> tuple[Ending, str, int]:
    outcome = gateway.outcome(reply.headers["x-request-id"])
    return outcome.ending, outcome.code, outcome.status


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[1]", None),
        (b'{"messages":[]}', "model"),
        (b'{"model":7}', "model"),
        (b'{"model":"m","stream":1}', "stream"),
    ],
)
def test_a_wrong_body_is_a_400_that_names_the_field(
    gateway: GatewayProcess, key: str, body: bytes, param: str | None
) -> None:
    reply = gateway.request("POST", CHAT, key, body)
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert reply.json["error"]["param"] == param
    assert ended(gateway, reply) == (Ending.REFUSED, "invalid_request", 400)


@pytest.mark.parametrize("text", ["", "sk-x", "sk-" + "a" * 48, "no bearer at all"])
def test_a_bad_key_is_a_401(gateway: GatewayProcess, text: str) -> None:
    reply = gateway.chat(text)
    assert (reply.status, reply.code) == (401, "invalid_api_key")
    assert reply.json["error"]["type"] == "authentication_error"
    assert reply.headers["www-authenticate"] == "Bearer"


def test_a_right_id_with_a_wrong_secret_is_a_401(
    gateway: GatewayProcess, key: str
) -> None:
    assert gateway.chat(key).status == 200
    reply = gateway.chat(key[:15] + "z" * 36)
    assert (reply.status, reply.code) == (401, "invalid_api_key")


def test_a_key_may_also_come_as_x_api_key(gateway: GatewayProcess, key: str) -> None:
    reply = gateway.request("GET", "/v1/models", headers={"x-api-key": key})
    assert reply.status == 200


def test_a_key_calls_only_its_models_and_sees_no_others(
    gateway: GatewayProcess, control: ControlPlane
) -> None:
    key = control.key(models=("solo",))
    assert gateway.chat(key, "solo").status == 200
    reply = gateway.chat(key, "m")
    assert (reply.status, reply.code) == (403, "model_not_allowed")
    assert reply.json["error"]["type"] == "permission_error"
    listed = gateway.request("GET", "/v1/models", key).json
    assert [model["id"] for model in listed["data"]] == ["solo"]
    assert gateway.request("GET", "/v1/models/solo", key).json["object"] == "model"
    reply = gateway.request("GET", "/v1/models/m", key)
    assert (reply.status, reply.code) == (404, "model_not_found")


def test_an_expired_key_is_refused(
    gateway: GatewayProcess, control: ControlPlane
) -> None:
    reply = gateway.chat(control.key(expires_at=time.time() - 1))
    assert (reply.status, reply.code) == (401, "invalid_api_key")


def test_an_unknown_model_is_a_404_and_another_kind_a_400(
    gateway: GatewayProcess, key: str
) -> None:
    reply = gateway.chat(key, "nothing")
    assert (reply.status, reply.code) == (404, "model_not_found")
    reply = gateway.chat(key, "vectors")
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert reply.json["error"]["param"] == "model"


def test_each_kind_offers_its_endpoints(gateway: GatewayProcess, key: str) -> None:
    for path, body in (
        ("/v1/completions", {"model": "m", "prompt": "a"}),
        ("/v1/embeddings", {"model": "vectors", "input": "a"}),
        ("/v1/rerank", {"model": "ranks", "query": "a", "documents": ["b"]}),
        ("/tokenize", {"model": "m", "prompt": "a b c"}),
    ):
        reply = gateway.request("POST", path, key, body)
        assert reply.status == 200, reply.body
        assert reply.headers["x-sluice-model"] == body["model"]


def test_counting_tokens_uses_none(gateway: GatewayProcess, key: str) -> None:
    body = {"model": "m", "prompt": "a b c"}
    reply = gateway.request("POST", "/tokenize", key, body)
    assert reply.json["count"] == 3
    outcome = gateway.outcome(reply.headers["x-request-id"])
    assert (outcome.prompt_tokens, outcome.completion_tokens) == (0, 0)
    assert not outcome.estimated
    # What the engine does not have, it says itself.
    reply = gateway.request("POST", "/detokenize", key, {"model": "m", "tokens": [1]})
    assert reply.status == 404 and "x-sluice-replica" in reply.headers


def test_served_replies_say_by_whom(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(record=True)
    reply = gateway.request(
        "POST",
        CHAT,
        key,
        b'{"x":1.50, "model" : "solo", "messages":[]}',
        {"traceparent": "00-ab-cd-01", "x-request-id": "mine-1", "cookie": "a=b"},
    )
    assert reply.status == 200
    headers = reply.headers
    assert headers["x-sluice-model"] == "solo"
    assert headers["x-sluice-version"] == "v1"
    assert headers["x-sluice-replica"] == "solo-v1-1"
    assert headers["x-sluice-attempts"] == "1"
    assert headers["x-sluice-queue-ms"] == "0"
    assert float(headers["x-sluice-overhead-ms"]) >= 0
    (seen,) = engines[0].requests()
    sent = {name.lower(): value for name, value in dict(seen["headers"]).items()}
    assert sent["x-request-id"] == headers["x-request-id"]
    assert sent["traceparent"] == "00-ab-cd-01"
    assert "authorization" not in sent and "cookie" not in sent
    assert sent["accept-encoding"] == "identity"
    outcome = gateway.outcome(headers["x-request-id"])
    assert outcome.client_request_id == "mine-1"
    assert outcome.ending is Ending.COMPLETED
    assert (outcome.revision, outcome.generation) == (outcome.revision, 7)
    assert (outcome.first_version, outcome.first_probability) == ("v1", 1.0)
    assert outcome.bytes_out == len(reply.body)
    assert outcome.completion_tokens == 16


def test_a_version_is_chosen_only_by_a_key_that_may(
    gateway: GatewayProcess, control: ControlPlane, key: str, engines: Engines
) -> None:
    control.probe("two-v1-1")
    control.probe("two-v2-1")
    one, other = engines[0].address, engines[1].address
    apply(control, gateway, route("two", {"v1": (10_000, [one]), "v2": (0, [other])}))

    def chosen(key: str, version: str) -> Reply:
        body = {"model": "two", "messages": []}
        return gateway.request("POST", CHAT, key, body, {"x-sluice-version": version})

    for _ in range(5):
        assert chosen(key, "v2").headers["x-sluice-version"] == "v2"
    reply = chosen(key, "v9")
    assert (reply.status, reply.code) == (400, "invalid_request")
    reply = chosen(control.key(), "v2")
    assert (reply.status, reply.code) == (403, "version_not_allowed")
    # No other version stands in for the chosen one.
    engines[1].set(status=500)
    assert chosen(key, "v2").status == 502


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_replica_is_replaced_by_the_other_one(
    gateway: GatewayProcess, key: str, engines: Engines, status: int, stream: bool
) -> None:
    engines[0].set(status=status)
    for _ in range(6):
        reply = gateway.chat(key, stream=stream)
        assert reply.status == 200
        assert reply.headers["x-sluice-replica"] == "m-v1-2"
    assert engines[1].counters().completed == 6


def test_when_all_fail_the_client_is_told_once_and_nobody_is_asked_twice(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    for engine in engines:
        engine.set(status=500)
    reply = gateway.chat(key)
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert reply.json["error"]["type"] == "api_error"
    assert [engine.counters().requests for engine in engines] == [1, 1]
    outcome = gateway.outcome(reply.headers["x-request-id"])
    assert outcome.ending is Ending.UPSTREAM_FAILED
    assert [attempt.error for attempt in outcome.attempts] == ["status", "status"]


def test_retries_never_double_the_traffic_to_replicas_that_all_fail(
    folder: Path, control: ControlPlane, key: str, engines: Engines
) -> None:
    """One retry budget for the whole route: what all replicas fail at is not tried
    twice for everybody."""
    for engine in engines:
        engine.set(status=500)
    with world.gateway(folder, control.valkey.url) as fresh:
        addresses = [engine.address for engine in engines]
        apply(control, fresh, route("m", {"v1": (10_000, addresses)}))
        replies = [fresh.chat(key) for _ in range(100)]
        assert {reply.status for reply in replies} == {502}
        hits = sum(engine.counters().requests for engine in engines)
        refused = fresh.metric("sluice_retries_refused_total", 'model="m"')
        # Ten seconds bear thirty retries and a fifth of the requests; a slow machine
        # takes longer.
        assert hits + refused == 200
        assert fresh.metric("sluice_retries_total") == hits - 100
        assert refused > 0


def test_when_all_are_saturated_it_is_a_429_with_the_longest_wait(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(status=429, headers={"retry-after": "7"})
    engines[1].set(status=503)
    reply = gateway.chat(key)
    assert (reply.status, reply.code) == (429, "upstream_saturated")
    assert reply.json["error"]["type"] == "rate_limit_error"
    assert reply.headers["retry-after"] == "7"


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_credential_is_no_fault_of_the_client(
    gateway: GatewayProcess, key: str, engines: Engines, status: int
) -> None:
    engines[0].set(status=status)
    reply = gateway.chat(key, "solo")
    assert (reply.status, reply.code) == (502, "upstream_auth")


@pytest.mark.parametrize("status", [400, 404, 422])
@pytest.mark.parametrize("stream", [False, True])
def test_an_engines_own_refusal_goes_on_as_it_came(
    gateway: GatewayProcess, key: str, engines: Engines, status: int, stream: bool
) -> None:
    body = {"object": "error", "message": "too long", "code": status}
    for engine in engines:
        engine.set(status=status, body=body)
    reply = gateway.chat(key, stream=stream)
    assert (reply.status, reply.json) == (status, body)
    assert sum(engine.counters().requests for engine in engines) == 1
    assert ended(gateway, reply) == (Ending.REFUSED, "engine_refused", status)


def test_a_huge_error_body_is_cut(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(status=400, body={"x": "y" * 1_000_000})
    reply = gateway.chat(key, "solo")
    assert reply.status == 400
    assert len(reply.body) == 64 * 1024
    assert gateway.chat(key, "solo").status == 400


def test_no_content_in_time_is_a_504_without_a_retry(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    for engine in engines:
        engine.set(hang=True)
    reply = gateway.chat(key)
    assert (reply.status, reply.code) == (504, "upstream_timeout")
    assert reply.json["error"]["type"] == "timeout_error"
    assert ended(gateway, reply) == (Ending.TIMED_OUT, "upstream_timeout", 504)
    assert sum(engine.counters().requests for engine in engines) == 1


def test_only_an_opening_event_is_no_content(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(opening_only=True)
    reply = gateway.chat(key, "solo", stream=True)
    assert (reply.status, reply.code) == (504, "upstream_timeout")
    engines[0].counters_when(lambda c: c.aborted == 1)


def test_the_total_time_ends_an_answer_that_never_does(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(gap_ms=100, tokens=1000)
    began = time.monotonic()
    reply = gateway.chat(key, "solo", stream=True)
    assert 0.9 < time.monotonic() - began < 10
    assert json.loads(reply.events[-1])["error"]["code"] == "upstream_timeout"
    assert "[DONE]" not in reply.events
    engines[0].counters_when(lambda c: c.aborted == 1)


def test_an_address_that_swallows_connections_is_left_in_time(
    gateway: GatewayProcess, key: str, control: ControlPlane, engines: Engines
) -> None:
    """A listening socket with a full queue never answers the handshake."""
    hole = socket.socket()
    hole.bind(("127.0.0.1", 0))
    hole.listen(0)
    address = f"http://127.0.0.1:{hole.getsockname()[1]}"
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(hole.getsockname())
        fillers.append(filler)
    control.probe("hole-v1-1")
    control.probe("hole-v2-1")
    versions = {"v1": (10_000, [address])}
    apply(control, gateway, route("hole", versions, timeouts={"connect_s": 0.3}))
    began = time.monotonic()
    reply = gateway.chat(key, "hole")
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert 0.25 < time.monotonic() - began < 4
    for open_socket in (hole, *fillers):
        open_socket.close()


@pytest.mark.parametrize("state", [Probe.DOWN, Probe.LOADING])
def test_no_eligible_replica_is_a_503_that_says_when_to_come_back(
    gateway: GatewayProcess, key: str, control: ControlPlane, state: Probe
) -> None:
    control.probe("solo-v1-1", state)
    reply = gateway.wait_for(
        lambda: next((r for r in [gateway.chat(key, "solo")] if r.status != 200), None)
    )
    assert (reply.status, reply.code) == (503, "no_healthy_replica")
    assert reply.json["error"]["type"] == "overloaded_error"
    assert int(reply.headers["retry-after"]) >= 1


@pytest.mark.parametrize("state", [Admin.DISABLED, Admin.DRAINING])
def test_a_replica_that_an_admin_took_out_gets_nothing_more(
    gateway: GatewayProcess,
    key: str,
    control: ControlPlane,
    engines: Engines,
    state: Admin,
) -> None:
    control.admin("m-v1-1", state)
    gateway.wait_for(lambda: gateway.state_of("m-v1-1") == state.value)
    before = engines[0].counters().requests
    for _ in range(20):
        assert gateway.chat(key).headers["x-sluice-replica"] == "m-v1-2"
    assert engines[0].counters().requests == before


def test_a_model_without_versions_has_no_replica(
    gateway: GatewayProcess, key: str
) -> None:
    reply = gateway.chat(key, "empty")
    assert (reply.status, reply.code) == (503, "no_healthy_replica")
