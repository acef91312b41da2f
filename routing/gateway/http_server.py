"""The server side of HTTP/1.1: strict parsing, bounded waiting, one at a time.

The parser (llhttp by way of httptools) refuses what could be read in two ways:
two lengths, bare line feeds, folded headers, spaces before a colon, control
characters. What it lets through and this gateway does not (other versions, codings
besides ``chunked``, a missing or second host) is refused here.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol, cast

import httptools

from routing.gateway import errors
from routing.gateway.clock import NEVER, Clock
from routing.gateway.config import GatewayConfig
from routing.gateway.errors import Problem, Refusal
from routing.gateway.http_reply import CONTINUE, ReplyWriter
from routing.gateway.request import Request

HEAD_BYTES = 32 * 1024
HEADER_COUNT = 100
URL_BYTES = 8 * 1024
HEAD_S = 15.0
BODY_S = 60.0
IDLE_S = 75.0
STALLED_S = 60.0
LINGER_S = 2.0
WRITE_HIGH_BYTES = 64 * 1024
# Pipelined requests wait parsed; beyond this many the socket is not read.
PIPELINED = 8


class Exchange(Protocol):
    """Whoever answers the current request."""

    def client_left(self) -> None: ...
    def client_blocked(self) -> None: ...
    def client_ready(self) -> None: ...
    def shut(self) -> None: ...


class Service(Protocol):
    """What a connection needs of the process that it belongs to."""

    config: GatewayConfig
    clock: Clock

    def handle(self, request: Request, connection: HttpServer) -> None:
        """Answer a request, now or later; ``connection.exchange`` is told of the
        client until ``reply`` or ``end`` was called."""

    def malformed(
        self, problem: Problem, request: Request, connection: HttpServer
    ) -> None:
        """Answer bytes that are no acceptable request."""

    def abandoned(self, request: Request, connection: HttpServer) -> None:
        """The client is gone before its request was whole, or had its turn."""


class HttpServer(ReplyWriter, asyncio.Protocol):
    """One client connection."""

    def __init__(self, service: Service, connections: set[HttpServer]) -> None:
        super().__init__(service.clock)
        self._service = service
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._incoming: Request | None = None
        self._waiting: deque[tuple[Request, Problem | None]] = deque()
        self._advancing = False
        self._reading_paused = False
        # No more requests are taken from this connection.
        self._deaf = False
        # What a client that blocks had not read when it was last looked at.
        self._unread = 0
        self.wake_at = NEVER
        self.exchange: Exchange | None = None
        self.peer = ""

    # The transport's calls ---------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        self.wake_at = self.clock.after(HEAD_S)
        self._connections.add(self)
        self.clock.watch(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self._connections.discard(self)
        self.clock.forget(self)
        if self.exchange is not None:
            self.exchange.client_left()
        self._abandon()

    def eof_received(self) -> None:
        """A client that has sent its last byte has left: nobody waits half-closed."""
        if self.exchange is not None:
            self.exchange.client_left()
            self.transport.abort()

    def pause_writing(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self.wake_at = self.clock.after(STALLED_S)
        if self.exchange is not None:
            self.exchange.client_blocked()

    def resume_writing(self) -> None:
        if self.request is not None:
            self.wake_at = NEVER
        if self.exchange is not None:
            self.exchange.client_ready()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._upgraded()
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, Refusal):
                raise
            self._refuse(cause.problem)
        except httptools.HttpParserError as error:
            self._refuse(errors.bad_http(f"Malformed HTTP: {error}."))
        self._progressed(len(data))
        self._advance()

    def shutdown(self) -> None:
        """The process drains: an idle connection closes, a busy one afterwards."""
        self.draining = True
        if self.request is None and not self._waiting and self._incoming is None:
            self.close()

    def break_off(self) -> None:
        """The process ends now: say so where a request is under way, and close."""
        if self.request is None and self._incoming and self._incoming.head_done:
            self._refuse(errors.draining())
            self._advance()
            return
        self.closing = True
        if self.exchange is not None:
            self.exchange.shut()
        else:
            self.close()

    def on_clock(self, now: float) -> None:
        unread = self.transport.get_write_buffer_size()
        if self.request is not None and 0 < unread < self._unread:
            # It reads slowly, but it reads.
            self._unread = unread
            self.wake_at = self.clock.after(STALLED_S)
            return
        self.wake_at = NEVER
        if self.request is not None or self._deaf or unread:
            # It does not read its answer, or lingers after one.
            self.transport.abort()
        elif self._incoming is not None:
            self._refuse(errors.bad_http("The request did not arrive in time.", 408))
            self._advance()
        else:
            self.close()

    # The parser's calls ------------------------------------------------------

    def on_message_begin(self) -> None:
        self._incoming = Request()
        if self.request is None:
            self.wake_at = self.clock.after(HEAD_S)

    def on_url(self, url: bytes) -> None:
        request = self._incoming
        assert request is not None
        request.url += url
        if len(request.url) > URL_BYTES:
            raise Refusal(errors.bad_http("The URL is longer than 8 KiB.", 414))

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._incoming
        assert request is not None
        request.header_count += 1
        request.head_bytes += len(name) + len(value) + 4
        if request.header_count > HEADER_COUNT or request.head_bytes > HEAD_BYTES:
            raise Refusal(_head_too_large())
        if request.head_done:
            # A trailer says nothing that routing may believe.
            return
        name = name.lower()
        if name in request.headers:
            if name in _SINGLE:
                raise Refusal(errors.bad_http(f"Repeated header {name.decode()}."))
            value = request.headers[name] + b", " + value
        request.headers[name] = value

    def on_headers_complete(self) -> None:
        request = self._incoming
        assert request is not None
        request.head_done = True
        request.method = self._parser.get_method().decode("ascii")
        request.path = request.url.partition(b"?")[0].decode("ascii", "replace")
        _check_head(request, self._parser.get_http_version())
        request.close = not (request.http_11 and self._parser.should_keep_alive())
        request.limit = self._body_limit(request)
        if int(request.headers.get(b"content-length", b"0")) > request.limit:
            raise Refusal(errors.request_too_large(request.limit))
        if self.request is None and not self._waiting:
            self._welcome_body(request)

    def on_body(self, part: bytes) -> None:
        request = self._incoming
        assert request is not None
        request.size += len(part)
        if request.size > request.limit:
            raise Refusal(errors.request_too_large(request.limit))
        request.parts.append(part)

    def on_message_complete(self) -> None:
        request = self._incoming
        assert request is not None
        self._incoming = None
        request.complete_at = time.monotonic()
        parts = request.parts
        request.body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._waiting.append((request, None))

    # One request after the other ---------------------------------------------

    def reply_done(self) -> None:
        """The answer of the current request is written."""
        self.exchange = None
        drained = self.draining and self._incoming is None and not self._waiting
        if self.closing or drained:
            self._close_politely()
        elif self._waiting:
            self._advance()
        elif self._incoming is None:
            self._resume_reading()
            self.wake_at = self.clock.after(IDLE_S)
        else:
            self.wake_at = self.clock.after(HEAD_S)
            if self._incoming.head_done:
                self._welcome_body(self._incoming)

    def _advance(self) -> None:
        if self._advancing:
            return
        self._advancing = True
        try:
            while self.request is None and self._waiting and not self.closing:
                request, problem = self._waiting.popleft()
                self._begin(request, problem)
        finally:
            self._advancing = False
        if len(self._waiting) > PIPELINED and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()
        elif not self._waiting:
            self._resume_reading()

    def _begin(self, request: Request, problem: Problem | None) -> None:
        self.wake_at = NEVER
        self.begin_reply(request)
        if problem is not None:
            self._service.malformed(problem, request, self)
        else:
            self._service.handle(request, self)

    def _refuse(self, problem: Problem) -> None:
        """Answer in turn with an error, and hear no more from this client."""
        if not self._deaf:
            request = self._incoming or Request()
            request.close = True
            self._waiting.append((request, problem))
        self._incoming = None
        self._deaf = True

    def _abandon(self) -> None:
        """Requests that came, in part or behind another one, and get no answer."""
        left = [request for request, _ in self._waiting]
        if self._incoming is not None and self._incoming.head_done:
            left.append(self._incoming)
        self._waiting.clear()
        self._incoming = None
        for request in left:
            self._service.abandoned(request, self)

    def _upgraded(self) -> None:
        """Nothing else is spoken here: the request is answered as if it had not
        asked, and what follows it is not read."""
        self._deaf = True
        self._waiting[-1][0].close = True

    def _progressed(self, received: int) -> None:
        """Bytes of a request came that is not complete yet."""
        request = self._incoming
        if request is None:
            return
        if not request.head_done:
            # What the parser holds of an incomplete header is seen nowhere else.
            request.raw_head_bytes += received
            if request.raw_head_bytes > HEAD_BYTES + URL_BYTES:
                self._refuse(_head_too_large())
        elif self.request is None:
            self.wake_at = self.clock.after(BODY_S)

    def _welcome_body(self, request: Request) -> None:
        self.wake_at = self.clock.after(BODY_S)
        if b"expect" in request.headers and not request.size:
            self.transport.write(CONTINUE)

    def _body_limit(self, request: Request) -> int:
        config = self._service.config
        if request.headers.get(b"content-type", b"").startswith(b"multipart/"):
            return config.max_multipart_bytes
        return config.max_body_bytes

    def _resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self.transport.resume_reading()

    def close(self) -> None:
        """Close once everything is written, soon even if the client reads nothing."""
        self._deaf = True
        self.wake_at = self.clock.after(LINGER_S)
        self.transport.close()

    def _close_politely(self) -> None:
        """Close after the answer; a client still sending gets time to read it."""
        if not self._deaf or self.transport.is_closing():
            self.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.wake_at = self.clock.after(LINGER_S)


_SINGLE = {
    b"host",
    b"authorization",
    b"x-api-key",
    b"content-type",
    b"content-length",
    b"transfer-encoding",
    b"expect",
    b"x-sluice-version",
}


def _head_too_large() -> Problem:
    return errors.bad_http(
        f"The header is larger than {HEAD_BYTES} bytes or {HEADER_COUNT} lines.", 431
    )


def _check_head(request: Request, version: str) -> None:
    """Refuse what the parser lets through and nobody should have to interpret."""
    headers = request.headers
    if version not in ("1.1", "1.0"):
        raise Refusal(errors.bad_http("Only HTTP/1.1 is spoken here.", 505))
    request.http_11 = version == "1.1"
    if request.http_11 and b"host" not in headers:
        raise Refusal(errors.bad_http("The Host header is missing."))
    if not request.url.startswith(b"/"):
        raise Refusal(errors.bad_http("The request target must be a path."))
    coding = headers.get(b"transfer-encoding")
    if coding is not None and (coding.lower() != b"chunked" or not request.http_11):
        raise Refusal(errors.bad_http("The only transfer coding is chunked."))
    if headers.get(b"expect", b"100-continue").lower() != b"100-continue":
        raise Refusal(errors.bad_http("The only expectation is 100-continue.", 417))
