"""A small HTTP/1.1 client for a few questions to one replica, bounded in every way.

Hundreds of replicas are asked every few seconds, and most of what a full client
costs goes into what is never needed here: redirects, cookies, proxies, encodings.
The peer may be anything; whatever it sends, at most a head of ``HEAD_LIMIT`` bytes
and the body that was asked for is kept. The caller bounds the time.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

CONNECT_TIMEOUT_S = 2.0
HEAD_LIMIT = 65_536


class Answer(NamedTuple):
    """Of a body that is longer than was asked for, one byte more than that."""

    status: int
    body: bytes


class NoAnswer(Exception):
    """There is no answer; ``reason`` is a code, ``detail`` the evidence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class _Stale(Exception):
    """A kept connection was closed before anything was answered on it."""


@functools.cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes longer than a hundred probes; once is enough."""
    return ssl.create_default_context()


class Link:
    """One connection to a replica, made when it is first needed."""

    def __init__(self, address: str) -> None:
        self._parts = urlsplit(address)
        self._connection: _Connection | None = None

    async def get(self, path: str, *, most_bytes: int) -> Answer:
        """The answer to one GET; raises ``NoAnswer``. Redirects are not followed."""
        head = (
            f"GET {path} HTTP/1.1\r\nhost: {self._parts.netloc}\r\n"
            "accept: */*\r\naccept-encoding: identity\r\nuser-agent: sluice\r\n\r\n"
        ).encode("ascii", "replace")
        return await self._ask(head, most_bytes)

    async def post(self, path: str, body: bytes, *, most_bytes: int) -> Answer:
        """The answer to one POST of JSON, marked as a request of our own."""
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self._parts.netloc}\r\n"
            "accept: */*\r\naccept-encoding: identity\r\nuser-agent: sluice\r\n"
            "content-type: application/json\r\nx-sluice-synthetic: 1\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode("ascii", "replace")
        return await self._ask(head + body, most_bytes)

    async def _ask(self, head: bytes, most_bytes: int) -> Answer:
        if self._connection is not None and self._connection.is_open:
            try:
                return await self._connection.ask(head, most_bytes)
            except _Stale:
                pass
        self._connection = await self._connect()
        return await self._connection.ask(head, most_bytes)

    async def _connect(self) -> _Connection:
        host, secure = self._parts.hostname or "", self._parts.scheme == "https"
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await asyncio.get_running_loop().create_connection(
                    _Connection,
                    host,
                    self._parts.port or (443 if secure else 80),
                    ssl=_tls() if secure else None,
                )
        except TimeoutError as error:
            detail = f"No connection within {CONNECT_TIMEOUT_S:g} s."
            raise NoAnswer("timeout", detail) from error
        except (OSError, ValueError) as error:
            raise _no_connection(error) from error
        return connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.transport.abort()


class _Connection(asyncio.Protocol):
    """One request at a time; ``asked_before`` tells a stale connection apart."""

    def __init__(self) -> None:
        self.is_open = False
        self._asked_before = False
        self._answer: asyncio.Future[Answer] | None = None

    async def ask(self, head: bytes, most_bytes: int) -> Answer:
        self._parser = httptools.HttpResponseParser(self)
        self._most_bytes = most_bytes
        self._head_bytes = 0
        self._in_body = self._framed = False
        self._body = bytearray()
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(head)
        try:
            return await self._answer
        finally:
            if not self._answer.done() or self._answer.cancelled():
                self.transport.abort()
            self._answer = None
            self._asked_before = True

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop has transport classes of its own.
        self.transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            # Nobody asked: whatever follows could not be told from an answer.
            self._drop()
            return
        if not self._in_body:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail("bad_http", "Answers, but not in HTTP.")
        if not self._in_body and self._head_bytes > HEAD_LIMIT:
            self._fail("bad_http", f"Its headers are longer than {HEAD_LIMIT} bytes.")

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._answer is None or self._answer.done():
            return
        if self._in_body and not self._framed and exc is None:
            # Without a length, the end of the connection is the end of the body.
            self.on_message_complete()
        elif self._asked_before and not self._head_bytes:
            self._answer.set_exception(_Stale())
        else:
            self._fail("connection_lost", "Closed the connection while answering.")

    # The parser's side.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._framed |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        # An interim answer (1xx) is followed by the real one.
        self._in_body = self._parser.get_status_code() >= 200
        self._framed &= self._in_body

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > self._most_bytes:
            self._finish()
            self._drop()

    def on_message_complete(self) -> None:
        if self._in_body:
            self._finish()
            if not self._parser.should_keep_alive():
                self._drop()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            body = bytes(self._body[: self._most_bytes + 1])
            self._answer.set_result(Answer(self._parser.get_status_code(), body))

    def _fail(self, reason: str, detail: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(NoAnswer(reason, detail))
        self._drop()

    def _drop(self) -> None:
        self.is_open = False
        self.transport.abort()


def _no_connection(error: OSError | ValueError) -> NoAnswer:
    """Why no connection came about, as exactly as the network tells."""
    if isinstance(error, ConnectionRefusedError):
        return NoAnswer("refused", "Connection refused: nothing listens there.")
    if isinstance(error, socket.gaierror | UnicodeError):
        return NoAnswer("unknown_host", "The host name is not known.")
    if isinstance(error, ssl.SSLCertVerificationError):
        return NoAnswer("tls", f"TLS failed: {error.verify_message}.")
    if isinstance(error, ssl.SSLError):
        return NoAnswer("tls", "TLS failed: it does not speak TLS there.")
    if isinstance(error, ConnectionError):
        return NoAnswer("connection_lost", "The connection broke while being made.")
    if isinstance(error, OSError) and error.strerror:
        return NoAnswer("unreachable", f"No connection: {error.strerror}.")
    return NoAnswer("unreachable", "No connection.")
