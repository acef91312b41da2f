"""How an answer is passed on: a stream of events, a whole answer, an error.

Each is given what the replica sends and tells the relay when there is content,
when the answer is whole, and when it broke.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from routing.contracts.outcome import Ending
from routing.gateway import errors, failure
from routing.gateway.errors import Problem
from routing.gateway.exchange import Exchange
from routing.gateway.failure import Failure
from routing.gateway.header_lines import EVENT_STREAM
from routing.gateway.sse import SseReader, error_message, error_refuses
from routing.gateway.upstream import Answer
from routing.gateway.usage import END_BYTES, Usage, usage_at_ends

# A whole answer is held back up to here, so that it can still fail politely.
WHOLE_BYTES = 256 * 1024
ERROR_BYTES = 64 * 1024


class Relaying(Protocol):
    """The relay, as seen from here."""

    exchange: Exchange

    def reader(self) -> SseReader: ...
    def served_lines(self) -> bytes: ...
    def content_reached(self) -> None: ...
    def moved(self) -> None: ...
    def fail(self, failed: Failure) -> None: ...
    def broke(self, problem: Problem, *, blames: bool = True) -> None: ...
    def release(self) -> None: ...
    def complete(
        self, status: int, ending: Ending, code: str, bytes_out: int
    ) -> bool: ...


class Passing(Protocol):
    """``tokens`` counts the events with content, ``usage`` is the engine's count."""

    @property
    def tokens(self) -> int: ...
    @property
    def usage(self) -> Usage | None: ...
    @property
    def finish_reason(self) -> str: ...

    def data(self, data: bytes, complete: bool) -> None:
        """More of the body; ``complete`` with the last of it."""

    def lost(self, detail: str) -> None:
        """The connection broke before the answer was whole."""


class StreamPassing:
    """Server-sent events: held until the first content, then from socket to socket."""

    def __init__(self, relay: Relaying, answer: Answer) -> None:
        self._relay = relay
        self._connection = relay.exchange.connection
        self._reader = relay.reader()
        self._encoded = answer.encoded
        self._held = b""
        self._flowing = False

    @property
    def tokens(self) -> int:
        """What is held back has not been passed on."""
        return self._reader.tokens if self._flowing else 0

    @property
    def usage(self) -> Usage | None:
        return self._reader.usage

    @property
    def finish_reason(self) -> str:
        return self._reader.finish_reason

    def data(self, data: bytes, complete: bool) -> None:
        reader = self._reader
        if self._flowing:
            events = reader.events
            passed = reader.feed(data)
            if reader.events != events:
                self._relay.moved()
            if not (complete or reader.done or reader.failure):
                self._connection.write(passed)
                return
        elif self._encoded:
            self._relay.fail(failure.broken("it compressed a stream unasked"))
            return
        else:
            passed = self._open(reader.feed(data))
        if complete:
            passed += self._open(reader.end())
        self._settle(passed, complete)

    def lost(self, detail: str) -> None:
        if self._flowing:
            self._broke(detail)
        else:
            self._relay.fail(failure.reset(detail))

    def _open(self, passed: bytes) -> bytes:
        """Hold what came until it has content; then let it all go."""
        if self._flowing:
            return passed
        self._held += passed
        if not self._reader.content or self._reader.failure:
            return b""
        self._flowing = True
        self._relay.content_reached()
        held, self._held = self._held, b""
        return held

    def _settle(self, passed: bytes, complete: bool) -> None:
        """Write what may be written, and see whether that was the end."""
        reader = self._reader
        if reader.failure:
            self._failed(passed)
        elif reader.done or (complete and self._flowing and reader.ended):
            self._finish(passed)
        elif complete and not self._flowing:
            self._relay.fail(failure.broken("its stream ended without content"))
        else:
            self._write(passed)
            if complete:
                self._broke("its stream ended too early")

    def _failed(self, passed: bytes) -> None:
        reader = self._reader
        if not self._flowing:
            self._relay.fail(failure.in_band(reader.failure, blames=not reader.refusal))
        else:
            self._write(passed)
            self._broke(reader.failure, blames=not reader.refusal)

    def _write(self, passed: bytes) -> None:
        connection = self._connection
        if not passed:
            return
        if connection.started:
            connection.write(passed)
        else:
            connection.start(200, self._relay.served_lines() + EVENT_STREAM, passed)

    def _finish(self, passed: bytes) -> None:
        self._relay.release()
        self._write(passed)
        connection = self._connection
        if self._relay.complete(200, Ending.COMPLETED, "", connection.bytes_out):
            connection.end()

    def _broke(self, detail: str, *, blames: bool = True) -> None:
        if self._reader.mid_event:
            self._connection.write(b"\n\n")
        self._relay.broke(errors.upstream_error(detail), blames=blames)


class _WholeChoice(msgspec.Struct):
    finish_reason: Any = None


class _Whole(msgspec.Struct):
    usage: Usage | None = None
    choices: list[_WholeChoice] | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode_whole = msgspec.json.Decoder(_Whole).decode


class WholePassing:
    """An answer in one piece; a very large one flows through once it is too large
    to hold."""

    tokens = 0

    def __init__(self, relay: Relaying, answer: Answer) -> None:
        self.usage: Usage | None = None
        self.finish_reason = ""
        self._relay = relay
        self._answer = answer
        # Of an answer that flows: its first and its last bytes.
        self._first = self._last = b""
        self._parts: list[bytes] = []
        self._size = 0
        self._flowing = False
        self._refused = False

    def data(self, data: bytes, complete: bool) -> None:
        connection = self._relay.exchange.connection
        if self._flowing:
            self._relay.moved()
            self._last = (self._last + data[-END_BYTES:])[-END_BYTES:]
            connection.write(data)
        else:
            self._parts.append(data)
            self._size += len(data)
            if complete:
                self._whole()
                return
            if self._size > WHOLE_BYTES:
                self._flow()
        if complete and self._flowing:
            self.usage = usage_at_ends(self._first, self._last)
            if self._relay.complete(
                self._answer.status, Ending.COMPLETED, "", connection.bytes_out
            ):
                connection.end()

    def lost(self, detail: str) -> None:
        if self._flowing:
            self._relay.broke(errors.upstream_error(detail))
        else:
            self._relay.fail(failure.reset(detail))

    def _flow(self) -> None:
        if self._relay.exchange.connection.started:
            self._relay.fail(failure.broken("it answered without a stream"))
            return
        self._flowing = True
        self._relay.content_reached()
        held = b"".join(self._parts)
        self._first, self._last = held[:END_BYTES], held[-END_BYTES:]
        self._relay.exchange.connection.start(
            self._answer.status, self._lines(), held, self._answer.length
        )
        self._parts.clear()

    def _whole(self) -> None:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        exchange = self._relay.exchange
        if detail := self._problem(body):
            self._relay.fail(failure.in_band(detail, blames=not self._refused))
            return
        if exchange.connection.started:
            self._relay.fail(failure.broken("it answered without a stream"))
            return
        self._relay.content_reached()
        lines = self._lines()
        if self._relay.complete(self._answer.status, Ending.COMPLETED, "", len(body)):
            exchange.connection.reply(self._answer.status, lines, body)

    def _lines(self) -> bytes:
        return b"%bcontent-type: %b\r\n%b" % (
            self._relay.served_lines(),
            self._answer.content_type or b"application/json",
            self._answer.lines,
        )

    def _problem(self, body: bytes) -> str:
        """An error that the engine hid in a good status; notes the usage as well."""
        if self._answer.encoded or b"json" not in self._answer.content_type:
            return ""
        try:
            whole = _decode_whole(body)
        except msgspec.DecodeError:
            return ""
        self.usage = whole.usage
        for choice in whole.choices or ():
            if isinstance(choice.finish_reason, str):
                self.finish_reason = self.finish_reason or choice.finish_reason
        if bytes(whole.error) not in (b"", b"null"):
            self._refused = error_refuses(bytes(whole.error))
            return error_message(bytes(whole.error))
        if any(choice.finish_reason == "abort" for choice in whole.choices or ()):
            return "it aborted the request"
        return ""


class ErrorPassing:
    """An engine's refusal of a request goes on as it came; its own failure does not."""

    tokens = 0
    usage: Usage | None = None
    finish_reason = ""

    def __init__(self, relay: Relaying, answer: Answer) -> None:
        self._relay = relay
        self._answer = answer
        self._body = b""

    def data(self, data: bytes, complete: bool) -> None:
        if failed := failure.of_status(self._answer):
            self._relay.fail(failed)
            return
        self._body += data
        if complete or len(self._body) > ERROR_BYTES:
            self._pass(self._body[:ERROR_BYTES])

    def lost(self, detail: str) -> None:
        self._relay.fail(failure.reset(detail))

    def _pass(self, body: bytes) -> None:
        relay, status = self._relay, self._answer.status
        connection = relay.exchange.connection
        if connection.started:
            relay.fail(_refused(status, body))
            return
        relay.content_reached()
        lines = b"%bcontent-type: %b\r\n%b" % (
            relay.served_lines(),
            self._answer.content_type or b"application/json",
            self._answer.lines,
        )
        if relay.complete(status, Ending.REFUSED, "engine_refused", len(body)):
            connection.reply(status, lines, body)


def _refused(status: int, body: bytes) -> Failure:
    """An engine's refusal for a client that already has its status line."""
    problem = Problem(
        status, "invalid_request_error", "invalid_request", error_message(body)
    )
    return Failure("refused", problem, retryable=False, blames=False)
