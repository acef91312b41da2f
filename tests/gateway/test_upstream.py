"""Replicas that speak odd or broken HTTP, byte for byte."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.gateway.world import ControlPlane, GatewayProcess, Reply, apply, route

pytestmark = pytest.mark.processes

BODY = b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}'
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
GOOD = WHOLE % len(BODY) + b"\r\n" + BODY
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
EVENT = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
DONE = b"data: [DONE]\n\n"


@contextmanager
def replica(answer: bytes, *, parts: int = 1) -> Iterator[str]:
    """Answers every connection's first request with these bytes, then closes."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.recv(65536)
                size = max(1, -(-len(answer) // parts))
                with contextlib.suppress(OSError):
                    for start in range(0, len(answer), size):
                        connection.sendall(answer[start : start + size])
                    connection.shutdown(socket.SHUT_WR)
                # Until the gateway has closed: a reset would take bytes with it.
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(65536):
                        pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def ask(
    control: ControlPlane, gateway: GatewayProcess, key: str, address: str, stream: bool
) -> Reply:
    control.probe("odd-v1-1")
    apply(control, gateway, route("odd", {"v1": (10_000, [address])}))
    return gateway.chat(key, "odd", stream=stream)


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,
        b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD,
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + GOOD,
        b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + BODY,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        + chunked(BODY[:9], BODY[9:]),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        + chunked(BODY).replace(b"0\r\n\r\n", b"0\r\nx-trailer: y\r\n\r\n"),
    ],
)
@pytest.mark.parametrize("parts", [1, 40])
def test_every_right_framing_of_a_whole_answer_is_read(
    control: ControlPlane,
    shared_gateway: GatewayProcess,
    key: str,
    answer: bytes,
    parts: int,
) -> None:
    with replica(answer, parts=parts) as address:
        reply = ask(control, shared_gateway, key, address, stream=False)
    assert (reply.status, reply.body) == (200, BODY)
    assert reply.headers["content-length"] == str(len(BODY))
    assert "x-trailer" not in reply.headers


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\xff junk\r\n\r\n",
        b"HTTP/1.1 200 OK\ncontent-length: 2\n\n{}",
        WHOLE % len(BODY) + b"transfer-encoding: chunked\r\n\r\n" + chunked(BODY),
        WHOLE % 5 + b"content-length: 6\r\n\r\n{}    ",
        WHOLE % (len(BODY) + 5) + b"\r\n" + BODY,
        GOOD + GOOD,
        GOOD + b"junk",
        b"HTTP/1.1 200 OK\r\n" + b"a: %b\r\n" % (b"b" * 80_000) + b"\r\n{}",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 200_000,
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(BODY)[:-5],
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        b'content-length: 30\r\n\r\n{"error":{"message":"hidden"}}',
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_broken_answer_is_a_502_and_nothing_of_it_leaks(
    control: ControlPlane,
    shared_gateway: GatewayProcess,
    key: str,
    answer: bytes,
    stream: bool,
) -> None:
    with replica(answer) as address:
        reply = ask(control, shared_gateway, key, address, stream)
    if reply.status == 200:
        # A good answer, and something behind it that nobody asked for.
        assert answer.startswith(GOOD) and reply.body == BODY
        return
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert shared_gateway.request("GET", "/livez").status == 200


@pytest.mark.parametrize(
    "answer",
    [
        SSE + b"transfer-encoding: chunked\r\n\r\n" + chunked(EVENT, EVENT, DONE),
        SSE + b"\r\n" + EVENT + EVENT + DONE,
        SSE + b"\r\n" + EVENT + EVENT + b"data: [DONE]\n",
        SSE
        + b"content-length: %d\r\n\r\n" % (2 * len(EVENT) + len(DONE))
        + EVENT
        + EVENT
        + DONE,
    ],
)
@pytest.mark.parametrize("parts", [1, 97])
def test_every_right_framing_of_a_stream_is_read(
    control: ControlPlane,
    shared_gateway: GatewayProcess,
    key: str,
    answer: bytes,
    parts: int,
) -> None:
    with replica(answer, parts=parts) as address:
        reply = ask(control, shared_gateway, key, address, stream=True)
    assert reply.status == 200
    assert reply.text == "aa"
    assert reply.events[-1] == "[DONE]"
    assert reply.headers["transfer-encoding"] == "chunked"


@pytest.mark.parametrize(
    "rest",
    [
        EVENT,
        EVENT + b'data: {"choices":[{"del',
        EVENT + b"data: {}\n\n: only comments\n\n",
    ],
)
def test_a_stream_that_just_stops_is_told_as_broken(
    control: ControlPlane, shared_gateway: GatewayProcess, key: str, rest: bytes
) -> None:
    with replica(SSE + b"\r\n" + rest, parts=3) as address:
        reply = ask(control, shared_gateway, key, address, stream=True)
    # By whole events: the error never lands inside another event.
    assert json.loads(reply.events[-1])["error"]["code"] == "upstream_error"
    assert all(json.loads(event) is not None for event in reply.events)
    assert "[DONE]" not in reply.events


def test_headers_of_the_connection_and_of_the_gateway_are_not_taken_over(
    control: ControlPlane, shared_gateway: GatewayProcess, key: str
) -> None:
    lines = (
        b"x-request-id: evil\r\nx-sluice-version: evil\r\nset-cookie: evil\r\n"
        b"keep-alive: 5\r\nserver: evil\r\nx-engine: kept\r\n"
    )
    with replica(WHOLE % len(BODY) + lines + b"\r\n" + BODY) as address:
        reply = ask(control, shared_gateway, key, address, stream=False)
    assert "evil" not in str(reply.headers)
    assert "keep-alive" not in reply.headers
    assert reply.headers["x-engine"] == "kept"
