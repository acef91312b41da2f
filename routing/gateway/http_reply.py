"""Writing answers onto a client connection."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from routing.gateway.clock import Clock
from routing.gateway.request import Request

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in HTTPStatus
}


def _status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status


class ReplyWriter:
    """Either one ``reply``, or ``start``, some ``write`` and ``end``.

    ``request`` is the request being answered, None between two. ``closing`` says
    that the connection ends with the current answer. ``bytes_out`` counts the
    bytes of the current answer's body.
    """

    transport: asyncio.Transport

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.request: Request | None = None
        self.closing = False
        self.draining = False
        self.started = False
        self.bytes_out = 0
        self._bodiless = False
        self._chunked = False

    def begin_reply(self, request: Request) -> None:
        self.request = request
        self.started = False
        self.bytes_out = 0
        self._bodiless = request.method == "HEAD"
        self._chunked = request.http_11
        self.closing = self.closing or request.close

    def reply(self, status: int, lines: bytes, body: bytes) -> None:
        """A whole answer; ``lines`` are header lines, each with its line end."""
        self.started = True
        length = b"content-length: %d\r\n\r\n" % len(body)
        if self._bodiless:
            body = b""
        self.bytes_out = len(body)
        self.transport.write(self._head(status, lines) + length + body)
        self._done()

    def start(
        self, status: int, lines: bytes, data: bytes, length: int | None = None
    ) -> None:
        """The head and the first bytes; without ``length`` the body is chunked."""
        self.started = True
        head = self._head(status, lines)
        if length is not None:
            self._chunked = False
            head += b"content-length: %d\r\n\r\n" % length
        elif self._chunked:
            head += b"transfer-encoding: chunked\r\n\r\n"
        else:
            # HTTP/1.0: the end of the connection is the end of the answer.
            self.closing = True
            head += b"\r\n"
        self.transport.write(head + self._framed(data))

    def write(self, data: bytes) -> None:
        """More of the body; nothing for no bytes, which would end a chunked one."""
        if data:
            self.transport.write(self._framed(data))

    def end(self) -> None:
        if self._chunked:
            self.transport.write(b"0\r\n\r\n")
        self._done()

    def cut(self) -> None:
        """Close in the middle of an answer: what was written goes out, and the
        missing end tells the client that something is missing."""
        self.closing = True
        self._done()

    def reply_done(self) -> None:
        raise NotImplementedError

    def _done(self) -> None:
        self.request = None
        self.reply_done()

    def _framed(self, data: bytes) -> bytes:
        self.bytes_out += len(data)
        if self._chunked and data:
            return b"%x\r\n%b\r\n" % (len(data), data)
        return data

    def _head(self, status: int, lines: bytes) -> bytes:
        request = self.request
        assert request is not None
        self.closing = self.closing or self.draining
        return b"%bx-request-id: %b\r\n%b%b%b" % (
            _status_line(status),
            request.id.encode(),
            self.clock.date,
            lines,
            b"connection: close\r\n" if self.closing else b"",
        )
