"""Deadlines of clients, with a clock that the test moves and no sockets."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from routing.gateway import http_server
from routing.gateway.clock import Clock
from routing.gateway.config import GatewayConfig
from routing.gateway.errors import Problem
from routing.gateway.http_server import HttpServer
from routing.gateway.request import Request


class Wire:
    """A transport that remembers."""

    def __init__(self) -> None:
        self.sent = b""
        self.unread = 0
        self.ended = ""

    def set_write_buffer_limits(self, **limits: int) -> None: ...
    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("192.0.2.1", 5)

    def write(self, data: bytes) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return bool(self.ended)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class Service:
    """Answers nothing by itself; the test does."""

    def __init__(self) -> None:
        self.config = GatewayConfig()
        self.clock = Clock()
        self.requests: list[Request] = []

    def handle(self, request: Request, connection: HttpServer) -> None:
        self.requests.append(request)

    def malformed(
        self, problem: Problem, request: Request, connection: HttpServer
    ) -> None:
        connection.reply(problem.status, b"", problem.body())


class Client:
    def __init__(self) -> None:
        self.service = Service()
        self.wire = Wire()
        self.connection = HttpServer(cast(Any, self.service), set())
        self.connection.connection_made(cast(asyncio.Transport, self.wire))

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)

    def ended(self) -> str:
        """Empty, "closed" or "aborted"."""
        return self.wire.ended

    def wait(self, seconds: float) -> None:
        """Let the clock stand so much later, and look as a tick would."""
        self.service.clock.now += seconds
        if self.connection.wake_at <= self.service.clock.now:
            self.connection.on_clock(self.service.clock.now)


@pytest.fixture
def client() -> Client:
    return Client()


POST = b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"
GET = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"


def test_a_client_that_says_nothing_is_closed_without_a_word(client: Client) -> None:
    client.wait(http_server.HEAD_S - 1)
    assert not client.ended()
    client.wait(1.2)
    assert (client.ended(), client.wire.sent) == ("closed", b"")


def test_a_head_in_drops_is_no_progress(client: Client) -> None:
    for byte in GET[:16]:
        client.send(bytes((byte,)))
        client.wait(1)
    assert client.wire.sent.startswith(b"HTTP/1.1 408 ")


def test_a_body_may_be_slow_but_not_stand_still(client: Client) -> None:
    client.send(POST)
    for byte in b"ab":
        client.wait(http_server.BODY_S - 1)
        client.send(bytes((byte,)))
    assert not client.wire.sent
    client.wait(http_server.BODY_S + 1)
    assert client.wire.sent.startswith(b"HTTP/1.1 408 ")
    assert not client.service.requests


def test_an_answer_may_take_its_time_and_the_connection_then_idles(
    client: Client,
) -> None:
    client.send(GET)
    client.wait(10_000)
    assert not client.ended()
    client.connection.reply(200, b"", b"ok")
    client.wait(http_server.IDLE_S - 1)
    assert not client.ended()
    client.send(GET)
    client.wait(2)
    assert len(client.service.requests) == 2
    client.connection.reply(200, b"", b"ok")
    client.wait(http_server.IDLE_S + 1)
    assert client.ended() == "closed"


def test_a_client_that_stops_reading_is_cut_off_and_a_slow_one_is_not(
    client: Client,
) -> None:
    client.send(GET)
    client.wire.unread = 90_000
    client.connection.pause_writing()
    for unread in (80_000, 70_000):
        client.wire.unread = unread
        client.wait(http_server.STALLED_S + 1)
        assert not client.ended()
    client.wait(http_server.STALLED_S + 1)
    assert client.ended() == "aborted"


def test_a_client_that_never_closes_after_a_refusal_is_cut_off(client: Client) -> None:
    client.send(b"junk\r\n\r\n")
    assert client.wire.sent.startswith(b"HTTP/1.1 400 ")
    client.send(b"more" * 1000)
    assert not client.ended()
    client.wait(http_server.LINGER_S + 1)
    assert client.ended() == "aborted"


def test_too_many_pipelined_requests_stop_the_reading(client: Client) -> None:
    paused: list[bool] = []
    client.wire.pause_reading = lambda: paused.append(True)  # type: ignore[method-assign]
    client.send(GET * (http_server.PIPELINED + 3))
    assert paused == [True]
    assert len(client.service.requests) == 1
    client.wire.resume_reading = lambda: paused.append(False)  # type: ignore[method-assign]
    for _ in range(http_server.PIPELINED + 3):
        client.connection.reply(200, b"", b"ok")
    assert paused == [True, False]
    assert client.wire.sent.count(b"HTTP/1.1 200 ") == http_server.PIPELINED + 3


def test_an_answer_longer_than_the_request_tells_no_continue_twice(
    client: Client,
) -> None:
    """The second request's head waits for its turn before it is welcomed."""
    expecting = POST.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n")
    client.send(GET + expecting)
    assert client.wire.sent == b""
    client.connection.reply(200, b"", b"ok")
    assert client.wire.sent.endswith(b"ok" + b"HTTP/1.1 100 Continue\r\n\r\n")
    client.send(b"body")
    assert client.service.requests[1].body == b"body"
