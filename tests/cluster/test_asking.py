"""Asking for health: whatever answers, or does not, is read within bounds."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster.engines import engine_get
from cluster.health import Probe, Reading
from cluster.services import asking
from cluster.services.asking import health_ask
from cluster.services.http_get import Link
from tests.cluster.peers import Peer, http

UP = Reading(Probe.UP)
CUT_OFF = b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"


def ask(address: str, engine: str = "llamacpp", **params: Any) -> Reading:
    async def question() -> Reading:
        link = Link(address)
        try:
            return await health_ask(
                link, engine=engine_get(engine), params=params, served_name="smol"
            )
        finally:
            link.close()

    return asyncio.run(question())


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(50):
        connection.sendall(b"x" * 1_000_000)


def bottomless_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for _ in range(5_000):
        connection.sendall(b"x-more: and more and more and more\r\n")


def silent(connection: socket.socket) -> None:
    connection.recv(1)


def hanging_after_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n")
    connection.recv(1)


def trickling(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(50):
        connection.sendall(b"x")
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        (http(b'{"status":"ok"}'), Probe.UP, ""),
        (
            http(
                b'{"error":{"message":"Loading model","code":503}}',
                "503 Service Unavailable",
            ),
            Probe.LOADING,
            "loading",
        ),
        (b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + http(b'{"status":"ok"}'),
         Probe.UP, ""),
        (b'HTTP/1.0 200 OK\r\n\r\n{"status":"ok"}', Probe.UP, ""),
        (http(b'{"status":"ok"}') + b"more than was asked for", Probe.UP, ""),
        (http(b"<html>hello</html>"), Probe.DOWN, "html"),
        (http(b"", "302 Found", "location: http://a/"), Probe.DOWN, "redirect"),
        (http(b"\x00\xff" * 100), Probe.DOWN, "wrong_answer"),
        (endless, Probe.DOWN, "too_large"),
        (http(b"x" * 70_000), Probe.DOWN, "too_large"),
        (bottomless_headers, Probe.DOWN, "bad_http"),
        (b"\x16\x03\x01\x00\xff not http at all\r\n\r\n", Probe.DOWN, "bad_http"),
        (b"", Probe.DOWN, "connection_lost"),
        (CUT_OFF, Probe.DOWN, "connection_lost"),
        (silent, Probe.DOWN, "timeout"),
        (hanging_after_headers, Probe.DOWN, "timeout"),
        (trickling, Probe.DOWN, "timeout"),
        (http(b"zz", "200 OK", "content-encoding: gzip"), Probe.DOWN, "wrong_answer"),
    ],
)  # fmt: skip
def test_whatever_answers_is_read_within_bounds(
    peer: Callable[..., Peer],
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes | Callable[[socket.socket], None],
    state: Probe,
    reason: str,
) -> None:
    # What does answer may take its time on a busy machine.
    if reason == "timeout":
        monkeypatch.setattr(asking, "READ_TIMEOUT_S", 0.3)
        monkeypatch.setattr(asking, "TOTAL_TIMEOUT_S", 1.0)
    began = time.monotonic()
    reading = ask(peer(answer).address)
    assert (reading.state, reading.reason) == (state, reason)
    assert time.monotonic() - began < 10


def test_a_redirect_is_not_followed(peer: Callable[..., Peer]) -> None:
    other = peer(http(b'{"status":"ok"}'))
    ask(peer(http(b"", "307 X", f"location: {other.address}/")).address)
    assert other.asked == []


def test_where_nothing_answers_the_reason_is_exact(
    peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert ask(f"http://127.0.0.1:{port}").reason == "refused"
    assert ask(f"http://[::1]:{port}").reason in ("refused", "unreachable")
    assert ask("http://no-such-host.invalid:80").reason == "unknown_host"
    assert ask("http://" + "a" * 70 + ":80").state is Probe.DOWN
    plain = peer(http(b""))
    assert ask(plain.address.replace("http:", "https:")).reason == "tls"


def test_engines_that_check_names_are_asked_for_them_too(
    peer: Callable[..., Peer],
) -> None:
    names = json.dumps({"data": [{"id": "other"}]}).encode()

    def answer(connection: socket.socket) -> None:
        connection.sendall(http(b"" if "health" in vllm.asked[-1] else names))

    vllm = peer(answer)
    reading = ask(vllm.address, "vllm")
    assert reading.reason == "model_not_offered"
    assert reading.detail == "Serves other; not smol."
    assert vllm.asked == ["GET /health HTTP/1.1", "GET /v1/models HTTP/1.1"]


def test_the_health_path_of_another_server_is_its_versions(
    peer: Callable[..., Peer],
) -> None:
    other = peer(http(b"fine"))
    assert ask(other.address, "generic", **{"health-path": "/status?a=1"}) == UP
    assert other.asked == ["GET /status?a=1 HTTP/1.1"]


def test_a_proxy_of_the_environment_is_not_used(
    peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, engine = peer(http(b"<html>")), peer(http(b'{"status":"ok"}'))
    monkeypatch.setenv("HTTP_PROXY", proxy.address)
    monkeypatch.setenv("ALL_PROXY", proxy.address)
    assert ask(engine.address) == UP
    assert proxy.asked == []


def test_one_connection_carries_all_questions_where_it_is_kept(
    peer: Callable[..., Peer],
) -> None:
    names = http(json.dumps({"data": [{"id": "smol"}]}).encode())

    def answer(connection: socket.socket) -> None:
        connection.sendall(http(b""))
        assert connection.recv(65_536).startswith(b"GET /v1/models ")
        connection.sendall(names)

    vllm = peer(answer)
    assert ask(vllm.address, "vllm") == UP
    assert vllm.asked == ["GET /health HTTP/1.1"]
