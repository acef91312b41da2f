"""HTTP as the gateway speaks it: nothing ambiguous, nothing unbounded."""

from __future__ import annotations

import http.client
import socket
import time

import pytest

from tests.gateway.world import GatewayProcess, read_all, read_until

pytestmark = pytest.mark.processes
OK = b"HTTP/1.1 200 "


@pytest.fixture
def gateway(shared_gateway: GatewayProcess) -> GatewayProcess:
    return shared_gateway


def get(*lines: bytes, first: bytes = b"GET /livez HTTP/1.1") -> bytes:
    return b"\r\n".join((first, b"host: x", *lines, b"", b""))


POST = b"POST /v1/chat/completions HTTP/1.1"
CHUNKED = b"transfer-encoding: chunked"


@pytest.mark.parametrize(
    "sent",
    [
        get(b"content-length: 3", CHUNKED, first=POST) + b"0\r\n\r\n",
        get(CHUNKED, b"content-length: 3", first=POST) + b"0\r\n\r\n",
        get(b"content-length: 3", b"content-length: 3", first=POST) + b"abc",
        get(b"content-length: 3, 3", first=POST) + b"abc",
        get(b"content-length: +3", first=POST) + b"abc",
        get(b"content-length: -3", first=POST) + b"abc",
        get(b"content-length:", first=POST) + b"abc",
        get(b"content-length: 99999999999999999999", first=POST) + b"abc",
        get(b"transfer-encoding: gzip, chunked", first=POST) + b"0\r\n\r\n",
        get(b"transfer-encoding: identity", first=POST) + b"abc",
        get(b"transfer-encoding: \x0bchunked", first=POST) + b"0\r\n\r\n",
        get(CHUNKED, first=b"POST / HTTP/1.0") + b"0\r\n\r\n",
        get(CHUNKED, first=POST) + b"3\nabc\r\n0\r\n\r\n",
        get(CHUNKED, first=POST) + b"0x3\r\nabc\r\n0\r\n\r\n",
        get(CHUNKED, first=POST) + b"fffffffffffffffffff\r\nabc\r\n",
        b"GET /livez HTTP/1.1\nhost: x\n\n",
        b"GET /livez HTTP/1.1\r\nhost: x\na: b\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\ra: b\r\n\r\n",
        get(b"a: b", b" folded"),
        get(b"a : b"),
        get(b"a: b\0c"),
        get(b"a: b\x01c"),
        get(b'a"b: c'),
        get(b": c"),
        get(b"no colon"),
        get(b"host: y"),
        get(b"authorization: Bearer a", b"authorization: Bearer b"),
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET http://x/livez HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /a\0b HTTP/1.1\r\nhost: x\r\n\r\n",
        b"BREW /livez HTTP/1.1\r\nhost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_and_closed(
    gateway: GatewayProcess, sent: bytes
) -> None:
    with gateway.raw(sent + get()) as connection:
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close\r\n" in answer
    assert b'"code":"invalid_request"' in answer


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (get(b"a: " + b"b" * 40_000), 431),
        (get(*(b"a%d: b" % n for n in range(120))), 431),
        (b"GET /livez HTTP/1.1\r\nhost: x\r\na: " + b"b" * 60_000, 431),
        (get(first=b"GET /" + b"a" * 9000 + b" HTTP/1.1"), 414),
        (get(b"expect: something", b"content-length: 1", first=POST), 417),
        (get(first=b"GET /livez HTTP/2.0"), 505),
        (get(b"content-length: 40000000", first=POST), 413),
    ],
)
def test_what_is_too_much_is_refused_by_name(
    gateway: GatewayProcess, sent: bytes, status: int
) -> None:
    with gateway.raw(sent) as connection:
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close\r\n" in answer


def test_a_chunked_body_over_the_limit_is_refused_while_it_comes(
    gateway: GatewayProcess,
) -> None:
    """The client gets to read the answer although it was still sending."""
    with gateway.raw(get(CHUNKED, first=POST)) as connection:
        part = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        try:
            for _ in range(40):
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"request_too_large" in answer


def test_a_connection_serves_one_request_after_the_other(
    gateway: GatewayProcess,
) -> None:
    client = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5)
    for _ in range(3):
        client.request("GET", "/livez")
        reply = gateway.read(client)
        assert reply.status == 200
        assert len(reply.headers["x-request-id"]) == 32
    sock = client.sock
    assert sock is not None
    client.close()


def test_pipelined_requests_are_answered_in_order(gateway: GatewayProcess) -> None:
    many = b"".join(
        get(first=b"GET /nothing/%d HTTP/1.1" % number) for number in range(300)
    )
    with gateway.raw(many + get(b"connection: close")) as connection:
        answer = read_all(connection)
    places = [answer.index(b"/nothing/%d." % number) for number in range(300)]
    assert places == sorted(places)
    assert answer.count(b"HTTP/1.1 404 ") == 300
    assert answer.count(OK) == 1


def test_a_bad_request_behind_a_good_one_spoils_only_itself(
    gateway: GatewayProcess,
) -> None:
    with gateway.raw(get() + b"junk\r\n\r\n" + get()) as connection:
        answer = read_all(connection)
    assert answer.startswith(OK)
    assert answer.count(b"HTTP/1.1 ") == 2
    assert b"HTTP/1.1 400 " in answer


def test_bytes_may_come_one_at_a_time(gateway: GatewayProcess) -> None:
    with gateway.raw() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in get(b"connection: close"):
            connection.sendall(bytes((byte,)))
        assert read_all(connection).startswith(OK)


def test_a_client_that_expects_a_continue_gets_it_before_the_body(
    gateway: GatewayProcess,
) -> None:
    head = get(b"expect: 100-continue", b"content-length: 2", first=POST)
    with gateway.raw(head) as connection:
        assert read_until(connection, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert read_until(connection, b"}}").startswith(b"HTTP/1.1 401 ")


def test_head_has_no_body_and_other_methods_are_named(gateway: GatewayProcess) -> None:
    reply = gateway.request("HEAD", "/readyz")
    assert reply.body == b"" and int(reply.headers["content-length"]) > 0
    reply = gateway.request("DELETE", "/v1/chat/completions")
    assert (reply.status, reply.code) == (405, "method_not_allowed")
    assert reply.headers["allow"] == "POST"
    reply = gateway.request("POST", "/livez", body=b"")
    assert (reply.status, reply.headers["allow"]) == (405, "GET")


def test_an_old_client_gets_its_answer_and_the_end_of_the_connection(
    gateway: GatewayProcess,
) -> None:
    with gateway.raw(b"GET /livez HTTP/1.0\r\n\r\n") as connection:
        answer = read_all(connection)
    assert answer.startswith(OK)
    assert b"connection: close" in answer


def test_a_request_that_asks_for_an_upgrade_is_answered_without_one(
    gateway: GatewayProcess,
) -> None:
    upgrade = get(b"connection: upgrade", b"upgrade: h2c")
    with gateway.raw(upgrade + get()) as connection:
        answer = read_all(connection)
    assert answer.startswith(OK)
    assert answer.count(b"HTTP/1.1 ") == 1


def test_unknown_paths_are_told_in_the_shape_of_all_errors(
    gateway: GatewayProcess,
) -> None:
    for path in ("/", "/v1", "/v1/messages", "/v1/chat/completions/", "/%00"):
        reply = gateway.request("GET", path)
        assert (reply.status, reply.code) == (404, "not_found")


def test_hundreds_of_connections_that_say_nothing_hurt_nobody(
    gateway: GatewayProcess,
) -> None:
    silent = [gateway.raw(b"GET /li") for _ in range(500)]
    took_s = []
    for _ in range(3):
        began = time.monotonic()
        assert gateway.request("GET", "/livez").status == 200
        took_s.append(time.monotonic() - began)
    assert min(took_s) < 1
    for connection in silent:
        connection.close()
