"""Streams: content at once, failures told, clients and replicas let go."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import psutil
import pytest

from cluster.engines.mock.payloads import text
from routing.contracts.outcome import Ending
from tests.fakes.engine import MockEngine
from tests.gateway import world
from tests.gateway.world import (
    ControlPlane,
    GatewayProcess,
    Reply,
    apply,
    read_all,
    read_until,
    route,
)

pytestmark = pytest.mark.processes
Engines = tuple[MockEngine, MockEngine]


@pytest.fixture
def gateway(
    control: ControlPlane, engines: Engines, shared_gateway: GatewayProcess
) -> GatewayProcess:
    """Model ``m`` on two replicas, ``solo`` on one."""
    prepare(control, shared_gateway, engines)
    return shared_gateway


def prepare(
    control: ControlPlane, gateway: GatewayProcess, engines: Engines, **timeouts: float
) -> None:
    one, other = engines[0].address, engines[1].address
    for replica in ("m-v1-1", "m-v1-2", "solo-v1-1"):
        control.probe(replica)
    limits = {"idle_s": 0.5, **timeouts}
    apply(
        control,
        gateway,
        route("m", {"v1": (10_000, [one, other])}, timeouts=limits),
        route("solo", {"v1": (10_000, [one])}, retries=0, timeouts=limits),
    )


def request_id(answer: bytes) -> str:
    return answer.partition(b"x-request-id: ")[2][:32].decode()


def test_every_token_arrives_at_once_and_none_is_missing(
    gateway: GatewayProcess, key: str
) -> None:
    shares = []
    # A busy machine may delay one of them, but not each.
    for _ in range(3):
        with gateway.raw_chat(
            key, "solo", stream=True, x_mock={"gap_ms": 50}
        ) as connection:
            began = time.monotonic()
            read_until(connection, b'"w0"')
            first_s = time.monotonic() - began
            rest = read_until(connection, b"0\r\n\r\n")
        whole_s = time.monotonic() - began
        assert b"w15" in rest and whole_s > 0.7
        shares.append(first_s / whole_s)
    assert min(shares) < 0.3


@pytest.mark.parametrize("wants_usage", [False, True])
def test_usage_is_counted_always_and_shown_to_who_asked(
    gateway: GatewayProcess, key: str, wants_usage: bool
) -> None:
    options = {"stream_options": {"include_usage": True}} if wants_usage else {}
    reply = gateway.chat(key, "solo", stream=True, max_tokens=5, **options)
    assert reply.events[-1] == "[DONE]"
    assert reply.text == text(5)
    shown = [e for e in reply.events[:-1] if json.loads(e).get("usage")]
    assert len(shown) == int(wants_usage)
    outcome = gateway.outcome(reply.headers["x-request-id"])
    assert outcome.completion_tokens == 5
    assert outcome.streamed and outcome.ending is Ending.COMPLETED
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["x-accel-buffering"] == "no"


def test_odd_but_right_streams_pass(gateway: GatewayProcess, key: str) -> None:
    reply = gateway.chat(key, "solo", stream=True, x_mock={"odd_fields": True})
    assert reply.status == 200
    assert reply.events[-1] == "[DONE]"


def test_the_official_client_reads_lists_answers_and_streams(
    gateway: GatewayProcess, key: str
) -> None:
    base = f"http://127.0.0.1:{gateway.port}/v1"
    with openai.OpenAI(api_key=key, base_url=base, max_retries=0) as client:
        assert "solo" in {model.id for model in client.models.list()}
        message = {"role": "user", "content": "hi"}
        whole = client.chat.completions.create(model="solo", messages=[message])  # type: ignore[list-item]
        assert whole.choices[0].message.content == text(16)
        stream = client.chat.completions.create(
            model="solo",
            messages=[message],  # type: ignore[list-item]
            stream=True,
        )
        chunks = [chunk for chunk in stream if not isinstance(chunk, tuple)]
        got = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert got == text(16)
        broken = client.chat.completions.create(
            model="solo",
            messages=[message],  # type: ignore[list-item]
            stream=True,
            extra_body={"x_mock": {"cut_after": 3}},
        )
        with pytest.raises(openai.APIError, match="replica failed"):
            list(broken)


# Failures before any content: another replica, a real status -----------------


@pytest.mark.parametrize(
    "switches",
    [
        {"cut_after": -1},
        {"cut_after": 0},
        {"in_band_error": "before"},
        {"refuse": True},
        {"finish_reason": "abort", "tokens": 0},
        {"status": 503},
    ],
)
def test_a_stream_that_fails_before_content_is_served_by_the_other_replica(
    gateway: GatewayProcess, key: str, engines: Engines, switches: dict[str, object]
) -> None:
    engines[0].set(**switches)
    for _ in range(5):
        reply = gateway.chat(key, stream=True)
        assert reply.status == 200
        assert reply.text == text(16) and reply.events[-1] == "[DONE]"
        assert reply.headers["x-sluice-replica"] == "m-v1-2"
        assert reply.headers["x-sluice-attempts"] in ("1", "2")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "switches", [{"cut_after": 0}, {"in_band_error": "before"}, {"cut_after": -1}]
)
def test_a_failure_before_content_has_a_real_status_when_nobody_else_is_there(
    gateway: GatewayProcess,
    key: str,
    engines: Engines,
    stream: bool,
    switches: dict[str, object],
) -> None:
    engines[0].set(**switches)
    reply = gateway.chat(key, "solo", stream=stream)
    assert (reply.status, reply.code) == (502, "upstream_error")
    outcome = gateway.outcome(reply.headers["x-request-id"])
    assert outcome.ending is Ending.UPSTREAM_FAILED
    assert len(outcome.attempts) == 1


def test_a_whole_answer_that_is_cut_is_asked_again_elsewhere(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(cut_after=3)
    for _ in range(4):
        reply = gateway.chat(key)
        assert reply.status == 200
        assert reply.json["choices"][0]["message"]["content"] == text(16)


def test_a_compressed_stream_is_refused_not_garbled(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(gzip=True)
    reply = gateway.chat(key, "solo", stream=True)
    assert (reply.status, reply.code) == (502, "upstream_error")
    reply = gateway.chat(key, "solo")
    assert reply.status == 200 and reply.headers["content-encoding"] == "gzip"


# Failures after content: one error event, no [DONE], never another replica ---


@pytest.mark.parametrize(
    ("switches", "code"),
    [
        ({"cut_after": 3, "gap_ms": 20}, "upstream_error"),
        ({"in_band_error": 3, "gap_ms": 20}, "upstream_error"),
        ({"stall_after": 3}, "upstream_timeout"),
        ({"finish_reason": "abort", "gap_ms": 20}, "upstream_error"),
    ],
)
def test_a_stream_that_breaks_says_so_and_is_not_repeated(
    gateway: GatewayProcess,
    key: str,
    engines: Engines,
    switches: dict[str, object],
    code: str,
) -> None:
    for engine in engines:
        engine.set(**switches)
    with gateway.raw_chat(key, stream=True) as connection:
        answer = read_all(connection)
    # Closed, without the last chunk that would say that nothing is missing.
    assert not answer.endswith(b"0\r\n\r\n")
    assert b"[DONE]" not in answer
    last = answer.rstrip().rpartition(b"data: ")[2]
    error = json.loads(last)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert b'"w0"' in answer
    assert sum(engine.counters().requests for engine in engines) == 1
    outcome = gateway.outcome(request_id(answer))
    assert (outcome.ending, outcome.code) == (Ending.BROKEN, code)
    assert outcome.status == 200


def test_an_end_without_done_after_a_finish_is_passed_on_as_it_came(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(no_done=True)
    reply = gateway.chat(key, "solo", stream=True)
    assert reply.text == text(16)
    assert "error" not in json.loads(reply.events[-1])
    outcome = gateway.outcome(reply.headers["x-request-id"])
    assert outcome.ending is Ending.COMPLETED


# Clients that leave ----------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "switches"),
    [
        (True, {"gap_ms": 20, "tokens": 10_000}),
        (True, {"delay_first_token_ms": 20_000}),
        (True, {"delay_headers_ms": 20_000}),
        (False, {"delay_headers_ms": 20_000}),
        (False, {"gap_ms": 100, "tokens": 200}),
    ],
)
def test_a_client_that_leaves_ends_the_work_of_the_replica_at_once(
    gateway: GatewayProcess,
    key: str,
    engines: Engines,
    stream: bool,
    switches: dict[str, object],
) -> None:
    engines[0].set(**switches)
    at = time.time()
    connection = gateway.raw_chat(key, "solo", stream=stream)
    engines[0].counters_when(lambda c: c.running == 1)
    if stream and "gap_ms" in switches:
        read_until(connection, b"w3")
    connection.close()
    began = time.monotonic()
    engines[0].counters_when(lambda c: c.running == 0 and c.aborted == 1)
    # What it was about to do would have taken it twenty seconds.
    assert time.monotonic() - began < 5
    (outcome,) = gateway.wait_for(
        lambda: [outcome for outcome in gateway.outcomes() if outcome.at >= at]
    )
    assert (outcome.status, outcome.ending) == (499, Ending.CLIENT_LEFT)
    assert outcome.code == "client_disconnected"
    gateway.wait_for(lambda: gateway.metric("sluice_in_flight") == 0)
    # No replica is blamed: the next request goes there again.
    engines[0].reset()
    assert gateway.chat(key, "solo").status == 200


def test_a_client_that_half_closes_has_left(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(hang=True)
    with gateway.raw_chat(key, "solo") as connection:
        engines[0].counters_when(lambda c: c.running == 1)
        connection.shutdown(1)
        engines[0].counters_when(lambda c: c.aborted == 1)


def test_a_client_that_does_not_read_stops_the_replica_and_costs_no_memory(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    """50 MB would come; the gateway takes what the sockets and 128 KiB hold."""
    assert gateway.process is not None
    process = psutil.Process(gateway.process.pid)
    gateway.chat(key, "solo")
    before = process.memory_info().rss
    sent = {"huge_body_bytes": 50_000_000}
    with gateway.raw_chat(key, "solo", stream=True, x_mock=sent) as connection:
        read_until(connection, b"data: ")
        # Idle longer than the idle timeout: that is the client's doing.
        time.sleep(0.8)
        grown = process.memory_info().rss - before
        assert grown < 8_000_000
        answer = read_until(connection, b"0\r\n\r\n", within_s=60)
    assert answer.count(b"x") > 49_000_000 or len(answer) > 49_000_000
    assert b"[DONE]" in answer


# Connections to replicas -----------------------------------------------------


def test_connections_are_kept_and_used_again(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    gateway.chat(key, "solo", stream=True)
    for stream in (True, False, True):
        reply = gateway.chat(key, "solo", stream=stream)
        assert (
            gateway.outcome(reply.headers["x-request-id"]).attempts[0].connect_ms
            is None
        )


def test_a_kept_connection_that_the_replica_closed_costs_no_attempt(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    """The replica dies and comes back: what the pool holds is dead."""
    assert gateway.chat(key, "solo").status == 200
    engines[0].kill()
    engines[0].start()
    reply = gateway.chat(key, "solo")
    assert reply.status == 200
    assert reply.headers["x-sluice-attempts"] == "1"


def test_a_replica_killed_under_load_fails_no_request(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    for engine in engines:
        engine.set(delay_headers_ms=20)
    with ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(gateway.chat, key) for _ in range(160)]
        gateway.wait_for(lambda: sum(reply.done() for reply in replies) > 40)
        engines[0].kill()
        statuses = Counter(reply.result().status for reply in replies)
    assert statuses == {200: 160}


def test_a_large_whole_answer_flows_through(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    reply = gateway.chat(key, "solo", x_mock={"huge_body_bytes": 3_000_000})
    assert reply.status == 200
    assert len(reply.body) == int(reply.headers["content-length"]) > 3_000_000
    assert len(json.dumps(reply.json)) > 3_000_000


# Shares ----------------------------------------------------------------------


def test_two_thousand_requests_split_within_binomial_bounds(
    gateway: GatewayProcess, key: str, control: ControlPlane, engines: Engines
) -> None:
    one, other = engines[0].address, engines[1].address
    for replica in ("w-v1-1", "w-v2-1", "w-v3-1"):
        control.probe(replica)
    apply(
        control,
        gateway,
        route("w", {"v1": (9000, [one]), "v2": (1000, [other]), "v3": (0, [one])}),
    )
    with ThreadPoolExecutor(8) as pool:
        replies: list[Reply] = list(
            pool.map(lambda _: gateway.chat(key, "w", max_tokens=1), range(2000))
        )
    shares = Counter(reply.headers["x-sluice-version"] for reply in replies)
    # A false alarm in more than a million runs.
    assert abs(shares["v2"] - 200) < 5.5 * math.sqrt(2000 * 0.1 * 0.9)
    assert set(shares) == {"v1", "v2"}


# Waiting ---------------------------------------------------------------------


def test_a_long_wait_gets_a_status_and_comments_and_then_its_content(
    control: ControlPlane, engines: Engines, key: str, folder: Path
) -> None:
    module = "tests.gateway.impatient"
    with world.gateway(folder, control.valkey.url, module=module) as gateway:
        prepare(control, gateway, engines, first_content_s=2.0, idle_s=0.5)
        for engine in engines:
            engine.set(delay_first_token_ms=1000)
        reply = gateway.chat(key, stream=True)
        assert 2 <= reply.body.count(b": waiting\n\n") <= 6
        assert reply.text == text(16)
        # A failure after the status line: the other replica first, then an event.
        engines[0].set(delay_first_token_ms=500, in_band_error="before")
        engines[1].reset()
        for _ in range(4):
            reply = gateway.chat(key, stream=True)
            assert reply.text == text(16)
        reply = gateway.chat(key, "solo", stream=True, x_mock={"cut_after": 0})
        if b": waiting" in reply.body:
            assert json.loads(reply.events[-1])["error"]["code"] == "upstream_error"
        # Comments never feed the timer of the replica.
        for engine in engines:
            engine.reset()
            engine.set(opening_only=True)
        began = time.monotonic()
        reply = gateway.chat(key, "solo", stream=True)
        assert 1.9 < time.monotonic() - began < 10
        assert json.loads(reply.events[-1])["error"]["code"] == "upstream_timeout"
        assert "[DONE]" not in reply.events
        # A refusal by the engine is told in the same way.
        for engine in engines:
            engine.reset()
            engine.set(delay_headers_ms=600, status=400, body={"message": "too long"})
        reply = gateway.chat(key, "solo", stream=True)
        assert json.loads(reply.events[-1])["error"]["message"] == "too long"
