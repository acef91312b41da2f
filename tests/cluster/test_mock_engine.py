"""The mock engine: what it promises is what the other tests stand on."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cluster.engines.mock.counters import Counters
from cluster.engines.mock.payloads import text
from tests.fakes.engine import ROOT, MockEngine

pytestmark = pytest.mark.processes

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def running() -> Iterator[MockEngine]:
    with MockEngine(model="tiny") as engine:
        yield engine


@pytest.fixture
def engine(running: MockEngine) -> MockEngine:
    running.counters_when(lambda counters: counters.running == 0)
    running.reset()
    return running


@pytest.fixture
def client(engine: MockEngine) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=engine.address, timeout=5, trust_env=False) as client:
        yield client


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "a b c"}], **fields}


def events(body: str) -> list[Any]:
    """The events of a stream, parsed, with the text of the last one as it is."""
    # Not splitlines: that also splits at U+2028, which JSON may contain.
    lines = [line for line in body.replace("\r\n", "\n").split("\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    values = [line.removeprefix("data: ") for line in lines]
    return [value if value == "[DONE]" else json.loads(value) for value in values]


def content(values: list[Any]) -> str:
    """What a client would show of a stream."""
    deltas = [
        choice["delta"]
        for value in values
        if isinstance(value, dict)
        for choice in value.get("choices", [])
    ]
    return "".join(delta.get("content") or "" for delta in deltas)


def streamed(client: httpx.Client, **fields: Any) -> list[Any]:
    answer = client.post(CHAT, json=ask(stream=True, **fields))
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events(answer.text)


def until_silent(client: httpx.Client, **fields: Any) -> bytes:
    """What arrives of a stream before nothing more does for a while."""
    received = b""
    with (
        pytest.raises(httpx.ReadTimeout),
        client.stream(
            "POST", CHAT, json=ask(stream=True, **fields), timeout=0.3
        ) as answer,
    ):
        for part in answer.iter_raw():
            received += part
    return received


def test_a_whole_answer_has_numbered_words_and_right_usage(
    client: httpx.Client,
) -> None:
    value = client.post(CHAT, json=ask(max_tokens=12)).json()
    assert value["choices"][0]["message"]["content"] == text(12)
    assert text(3) == "w0 w1 w2"
    assert value["choices"][0]["finish_reason"] == "length"
    assert value["model"] == "m"
    assert value["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 12,
        "total_tokens": 15,
    }


def test_without_max_tokens_the_switch_decides(
    engine: MockEngine, client: httpx.Client
) -> None:
    engine.set(tokens=5)
    value = client.post(CHAT, json=ask()).json()
    assert value["choices"][0]["message"]["content"] == text(5)
    assert value["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("wanted", [True, False])
def test_a_stream_is_opening_words_finish_and_usage_if_asked_for(
    client: httpx.Client, wanted: bool
) -> None:
    values = streamed(client, max_tokens=4, stream_options={"include_usage": wanted})
    assert values[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert content(values) == text(4)
    assert values[-1] == "[DONE]"
    if wanted:
        assert values[-2]["choices"] == []
        assert values[-2]["usage"]["completion_tokens"] == 4
    assert values[-3 if wanted else -2]["choices"][0]["finish_reason"] == "length"


def test_completions_embeddings_rerank_and_pages(client: httpx.Client) -> None:
    completion = client.post("/v1/completions", json={"prompt": "a b", "max_tokens": 2})
    assert completion.json()["choices"][0]["text"] == "w0 w1"
    assert completion.json()["usage"]["prompt_tokens"] == 2
    vectors = client.post("/v1/embeddings", json={"input": ["a", "b", "a"]}).json()
    first, second, third = (entry["embedding"] for entry in vectors["data"])
    assert first == third != second
    ranked = client.post(
        "/v1/rerank", json={"query": "red fox", "documents": ["dog", "red fox", "fox"]}
    ).json()["results"]
    assert [(r["index"], r["relevance_score"]) for r in ranked] == [
        (1, 1.0),
        (2, 0.5),
        (0, 0.0),
    ]
    assert client.get("/v1/models").json()["data"][0]["id"] == "tiny"
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/version").json() == {"version": "mock"}
    assert client.post("/tokenize", json={"prompt": "a b c"}).json()["count"] == 3
    assert "mock_requests_running 0" in client.get("/metrics").text
    for _ in range(2):
        assert client.head("/health").status_code == 405
    assert client.get("/v1/nothing").status_code == 404


def test_strange_paths_do_not_fill_its_memory(
    engine: MockEngine, client: httpx.Client
) -> None:
    for number in range(150):
        client.get(f"/{number}")
    assert len(engine.counters().paths) == 100


def test_junk_is_a_bad_request_and_ends_nothing(client: httpx.Client) -> None:
    for body in (b"{", b"[]", b'{"max_tokens": "many"}', b"\xff"):
        assert client.post(CHAT, content=body).status_code == 400
    assert client.post(CHAT, json=ask(x_mock={"nonsense": 1})).status_code == 400
    assert client.post(CHAT, json=ask()).status_code == 200


def test_a_wrong_switch_is_refused_and_changes_nothing(engine: MockEngine) -> None:
    before = engine.set(gap_ms=1)
    for wrong in ({"gap_ms": -1}, {"nonsense": 1}, {"fail_rate": 2}, {"health": "x"}):
        with pytest.raises(ValueError, match="."):
            engine.set(**wrong)
    assert engine.set() == before


def test_switches_of_one_request_leave_the_next_alone(client: httpx.Client) -> None:
    for one in (
        {"headers": {"x-mock": '{"status": 418}'}, "json": ask()},
        {"json": ask(x_mock={"status": 418})},
    ):
        assert client.post(CHAT, **one).status_code == 418  # type: ignore[arg-type]
        assert client.post(CHAT, json=ask()).status_code == 200


def test_status_headers_and_body_are_answered_as_told(
    engine: MockEngine, client: httpx.Client
) -> None:
    engine.set(status=429, headers={"retry-after": "7"}, body={"detail": "slow down"})
    answer = client.post(CHAT, json=ask(stream=True))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.json() == {"detail": "slow down"}
    engine.set(body="plain")
    assert client.post("/v1/embeddings", json={"input": "a"}).text == "plain"


def test_delays_come_before_the_head_the_first_word_and_each_other(
    client: httpx.Client,
) -> None:
    pace = {"delay_headers_ms": 60, "delay_first_token_ms": 40, "gap_ms": 20}
    heads_at = []
    # What is late may be so because of the machine; the best of some is not.
    for _ in range(5):
        started = time.monotonic()
        with client.stream(
            "POST", CHAT, json=ask(stream=True, max_tokens=3, x_mock=pace)
        ) as answer:
            heads_at.append(time.monotonic() - started)
            arrivals = [
                time.monotonic() - started
                for line in answer.iter_lines()
                if '"w' in line or '" w' in line
            ]
        assert arrivals[0] >= 0.095 and arrivals[2] >= 0.135
    assert 0.055 <= min(heads_at) < 0.095
    started = time.monotonic()
    client.post(CHAT, json=ask(max_tokens=3, x_mock=pace))
    assert time.monotonic() - started >= 0.135


@pytest.mark.parametrize("count", [0, 3])
def test_a_cut_stream_has_the_words_before_it_and_no_end(
    engine: MockEngine, client: httpx.Client, count: int
) -> None:
    received = b""
    with (
        pytest.raises(httpx.RemoteProtocolError),
        client.stream(
            "POST", CHAT, json=ask(stream=True, x_mock={"cut_after": count})
        ) as answer,
    ):
        for part in answer.iter_raw():
            received += part
    assert content(events(received.decode())) == text(count)
    counters = engine.counters()
    assert (counters.cut, counters.tokens_sent) == (1, count)


@pytest.mark.parametrize("streams", [True, False])
def test_minus_one_cuts_before_the_head(client: httpx.Client, streams: bool) -> None:
    with pytest.raises(httpx.RemoteProtocolError, match="without sending"):
        client.post(CHAT, json=ask(stream=streams, x_mock={"cut_after": -1}))


def test_a_whole_answer_is_cut_inside_its_body(client: httpx.Client) -> None:
    for at in (0, 8, 16):
        with pytest.raises(httpx.RemoteProtocolError, match="complete message"):
            client.post(CHAT, json=ask(x_mock={"cut_after": at}))


def test_silences_keep_the_connection_open(
    engine: MockEngine, client: httpx.Client
) -> None:
    stalled = until_silent(client, x_mock={"stall_after": 2})
    assert content(events(stalled.decode())) == text(2)
    opened = until_silent(client, x_mock={"opening_only": True})
    assert content(events(opened.decode())) == ""
    finished = events(
        until_silent(client, x_mock={"silent_after_finish": True}).decode()
    )
    assert finished[-1]["choices"][0]["finish_reason"] == "stop"
    assert until_silent(client, x_mock={"hang": True}) == b""
    engine.counters_when(lambda counters: counters.aborted == 4)


def test_health_may_be_green_while_generation_hangs_and_the_reverse(
    engine: MockEngine, client: httpx.Client
) -> None:
    engine.set(hang=True)
    assert client.get("/health").status_code == 200
    engine.set(hang=False, health="loading")
    loading = client.get("/health")
    assert loading.status_code == 503
    assert loading.json()["error"]["message"] == "Loading model"
    assert client.post(CHAT, json=ask()).status_code == 200
    engine.set(health="error")
    assert client.get("/health").status_code == 500
    engine.set(health="hang")
    with pytest.raises(httpx.ReadTimeout):
        client.get("/health", timeout=0.2)


def test_streams_without_done_without_usage_with_another_finish(
    client: httpx.Client,
) -> None:
    told = {"no_done": True, "no_usage": True, "finish_reason": "abort"}
    values = streamed(client, stream_options={"include_usage": True}, x_mock=told)
    assert values[-1]["choices"][0]["finish_reason"] == "abort"
    assert "usage" not in client.post(CHAT, json=ask(x_mock=told)).json()


@pytest.mark.parametrize(("at", "count"), [("before", 0), (0, 0), (2, 2)])
def test_an_error_may_come_inside_a_good_answer(
    client: httpx.Client, at: int | str, count: int
) -> None:
    values = streamed(client, x_mock={"in_band_error": at})
    assert content(values) == text(count)
    assert values[-2]["error"]["code"] == 500
    assert len(values) == 2 + count + (at != "before")
    whole = client.post(CHAT, json=ask(x_mock={"in_band_error": at}))
    assert (whole.status_code, "error" in whole.json()) == (200, True)


def test_odd_fields_change_the_bytes_and_not_the_meaning(
    engine: MockEngine, client: httpx.Client
) -> None:
    engine.set(odd_fields=True)
    with client.stream("POST", CHAT, json=ask(stream=True, max_tokens=30)) as answer:
        parts = list(answer.iter_raw())
    body = b"".join(parts)
    values = events(body.decode())
    assert content(values) == text(30, odd=True)
    assert "🚀" in content(values)
    assert b"\r\n\r\n" in body
    assert values[1]["service_tier"] is None
    sizes = {len(part) for part in parts}
    assert min(sizes) == 1 and len(sizes) > 4
    whole = client.post(CHAT, json=ask(max_tokens=30)).json()
    assert whole["choices"][0]["message"]["content"] == text(30, odd=True)


@pytest.mark.parametrize("streams", [True, False])
def test_a_huge_answer_arrives_whole(client: httpx.Client, streams: bool) -> None:
    told = {"huge_body_bytes": 5_000_000}
    answer = client.post(CHAT, json=ask(stream=streams, x_mock=told))
    assert len(answer.content) > 5_000_000
    if streams:
        assert content(events(answer.text)) == text(16)
    else:
        assert answer.json()["choices"][0]["message"]["content"] == text(16)


def test_a_client_that_does_not_read_makes_the_mock_wait(engine: MockEngine) -> None:
    body = json.dumps(ask(x_mock={"huge_body_bytes": 20_000_000})).encode()
    with socket.create_connection((engine.host, engine.port)) as client:
        client.sendall(
            b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"
            % (CHAT.encode(), len(body), body)
        )
        assert client.recv(1000)
        assert engine.counters().running == 1
    assert engine.counters_when(lambda c: c.running == 0).aborted == 1


def test_gzip_comes_unasked_and_every_event_can_be_read_at_once(
    client: httpx.Client,
) -> None:
    plain = {"accept-encoding": "identity"}
    told = ask(stream=True, x_mock={"gzip": True})
    with client.stream("POST", CHAT, json=told, headers=plain) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        body = b"".join(answer.iter_raw())
    assert content(events(gzip.decompress(body).decode())) == text(16)
    stalled = until_silent(client, x_mock={"gzip": True, "stall_after": 2})
    assert stalled.startswith(b"\x1f\x8b")


def test_a_share_of_requests_fails_the_same_way_every_time(
    engine: MockEngine, client: httpx.Client
) -> None:
    def outcomes() -> list[int]:
        engine.set(fail_rate=0.3, seed=7)
        return [client.post(CHAT, json=ask()).status_code for _ in range(200)]

    first = outcomes()
    assert first == outcomes()
    assert 30 <= first.count(500) <= 90
    assert first.count(200) + first.count(500) == 200


def test_refused_connections_close_without_a_byte_until_it_is_reset(
    engine: MockEngine, client: httpx.Client
) -> None:
    engine.set(refuse=True)
    for path in (CHAT, "/health"):
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            client.post(path, json=ask())
    engine.reset()
    assert client.post(CHAT, json=ask()).status_code == 200


def test_an_idle_connection_is_closed_after_the_keep_alive(engine: MockEngine) -> None:
    engine.set(keep_alive_s=0.1)
    with socket.create_connection((engine.host, engine.port), timeout=5) as client:
        for _ in range(2):
            client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        answered = time.monotonic()
        assert client.recv(4096) == b""
        assert 0.05 < time.monotonic() - answered < 2


def test_pipelined_requests_are_answered_in_order(engine: MockEngine) -> None:
    engine.set(delay_headers_ms=20)

    def post(count: int) -> bytes:
        body = json.dumps(ask(max_tokens=count)).encode()
        head = b"POST %s HTTP/1.1\r\ncontent-length: %d\r\n\r\n"
        return head % (CHAT.encode(), len(body)) + body

    last = b"GET /version HTTP/1.1\r\nconnection: close\r\n\r\n"
    with socket.create_connection((engine.host, engine.port), timeout=5) as client:
        client.sendall(post(1) + post(2) + last)
        received = b""
        while part := client.recv(65_536):
            received += part
    places = [received.index(mark) for mark in (b'"w0"', b'"w0 w1"', b'"version"')]
    assert places == sorted(places)


def test_any_number_of_requests_may_wait_their_turn(engine: MockEngine) -> None:
    engine.set(delay_headers_ms=20)
    slow = b"POST %s HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}" % CHAT.encode()
    quick = b"GET /version HTTP/1.1\r\n\r\n" * 2000
    last = b"GET /version HTTP/1.1\r\nconnection: close\r\n\r\n"
    with socket.create_connection((engine.host, engine.port), timeout=5) as client:
        client.sendall(slow + quick + last)
        received = b""
        while part := client.recv(65_536):
            received += part
    assert received.count(b"HTTP/1.1 200 OK") == 2002
    counters = engine.counters()
    assert (counters.requests, counters.completed, counters.running) == (1, 1, 0)


def test_counters_add_up_when_clients_leave(
    engine: MockEngine, client: httpx.Client
) -> None:
    told = ask(stream=True, max_tokens=1000, x_mock={"gap_ms": 5})
    with client.stream("POST", CHAT, json=told) as first:
        # Kept by name: a dropped iterator closes its stream.
        parts = first.iter_raw()
        next(parts)
        with client.stream("POST", CHAT, json=told) as second:
            more = second.iter_raw()
            next(more)
            assert engine.counters().running == 2
    client.post(CHAT, json=ask())
    client.get("/health")
    counters = engine.counters_when(lambda c: c.running == 0)
    assert (counters.requests, counters.aborted, counters.completed) == (3, 2, 1)
    assert counters.max_running == 2
    assert counters.paths == {CHAT: 3, "/health": 1}


def test_a_client_that_leaves_is_seen_at_once_even_in_a_silence(
    engine: MockEngine, client: httpx.Client
) -> None:
    until_silent(client, x_mock={"hang": True})
    assert engine.counters_when(lambda c: c.aborted == 1).running == 0


def test_recorded_requests_keep_secrets_to_themselves(
    engine: MockEngine, client: httpx.Client
) -> None:
    engine.set(record=True)
    client.post(CHAT, json=ask(), headers={"authorization": "Bearer sk-secret"})
    (seen,) = engine.requests()
    assert seen["headers"]["authorization"] == "(secret)"
    assert json.loads(seen["body"]) == ask()
    assert "sk-secret" not in json.dumps(seen)


def test_it_starts_fast_and_ends_at_once_with_open_streams() -> None:
    started = time.monotonic()
    with MockEngine(hang=True, headers={"x-a": "b"}) as engine:
        ready = time.monotonic() - started
        with socket.create_connection((engine.host, engine.port)) as client:
            client.sendall(
                b"POST %s HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}" % CHAT.encode()
            )
            engine.counters_when(lambda c: c.running == 1)
            stopping = time.monotonic()
            engine.stop()
            assert time.monotonic() - stopping < 5
    assert ready < 10


def test_a_killed_one_starts_again_on_its_port() -> None:
    with MockEngine() as engine:
        port = engine.port
        engine.kill()
        with pytest.raises(ConnectionRefusedError):
            engine.counters()
        assert engine.start().port == port
        assert engine.counters() == Counters()


def test_it_ends_when_the_process_that_started_it_does() -> None:
    code = (
        "import os, sys; from tests.fakes.engine import MockEngine\n"
        "print(MockEngine().start().port, flush=True); os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=10
    )
    deadline = time.monotonic() + 15
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(done.stdout))).close()
        except ConnectionRefusedError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("wrong", [["--gap-ms", "x"], ["--host", "203.0.113.9"]])
def test_a_wrong_command_line_is_told_in_one_line(wrong: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cluster.engines.mock", *wrong],
        cwd=ROOT,
        capture_output=True,
        timeout=10,
    )
    assert done.returncode == 2
    assert b"error: " in done.stderr.splitlines()[-1]
    assert b"Traceback" not in done.stderr
