"""Reading a server-sent event stream of an engine while it passes through.

Only whole events are passed on, so that an error event never lands inside
another one. Events are found by their blank line, wherever the network cut them.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from routing.gateway.usage import Usage

# An unfinished event larger than this is passed on in parts, unread.
EVENT_BYTES = 256 * 1024

_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_ENDS = (b"\n\n", b"\r\n\r\n")
# What makes an event worth reading once content flows: an ending, a count, an error.
_NOTABLE = re.compile(rb'"finish_reason"\s*:\s*"|"usage"\s*:\s*\{|"error"|\[DONE\]')
_EMPTY = (b"", b"null", b'""', b"[]", b"{}", b"false", b"0")


def is_nothing(raw: msgspec.Raw) -> bool:
    """Whether a field is missing, or says nothing."""
    return bytes(raw) in _EMPTY


class _Delta(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw()
    reasoning: msgspec.Raw = msgspec.Raw()
    reasoning_content: msgspec.Raw = msgspec.Raw()
    tool_calls: msgspec.Raw = msgspec.Raw()

    def any(self) -> bool:
        parts = (self.content, self.reasoning, self.reasoning_content, self.tool_calls)
        return not all(map(is_nothing, parts))


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: msgspec.Raw = msgspec.Raw()
    finish_reason: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Chunk).decode


class SseReader:
    """``feed`` what arrives; it returns what may be passed on, in order.

    ``content`` turns true with the first token (or an ending without any),
    ``done`` with ``[DONE]``, ``failure`` names an error that the engine put into
    the stream (``refusal``: one that blames the request, not the engine); nothing
    after either of these two is passed on. ``events`` counts
    reads that held an event: comments keep a connection open, but prove nothing.
    ``tokens`` counts events with content, about one a token.
    """

    __slots__ = (
        "_inside",
        "_plain",
        "_strip_usage",
        "_tail",
        "content",
        "done",
        "events",
        "failure",
        "finish_reason",
        "refusal",
        "tokens",
        "usage",
    )

    def __init__(self, strip_usage: bool = False) -> None:
        self._strip_usage = strip_usage
        self._tail = b""
        self._inside = False
        # Content flows, and what comes next begins an event.
        self._plain = False
        self.content = False
        self.done = False
        self.failure = ""
        self.refusal = False
        self.finish_reason = ""
        self.usage: Usage | None = None
        self.events = 0
        self.tokens = 0

    @property
    def mid_event(self) -> bool:
        """Whether the last bytes passed on were the beginning of an event."""
        return self._inside

    @property
    def ended(self) -> bool:
        """Whether the stream may end here without anything missing."""
        return self.done or (bool(self.finish_reason) and not self._tail.strip())

    def feed(self, data: bytes) -> bytes:
        if (
            self._plain
            and data.endswith(_ENDS)
            and data.startswith(b"data:")
            and not _NOTABLE.search(data)
        ):
            self.events += 1
            self.tokens += data.count(b"\ndata:") + 1
            return data
        return self._read(data)

    def end(self) -> bytes:
        """The stream is over: a last event that only lacks its blank line counts, one
        that was torn does not."""
        if self._inside or not _is_whole(_payload(self._tail)):
            return b""
        return self._read(b"\n\n")

    def _over(self) -> bool:
        return self.done or bool(self.failure)

    def _read(self, data: bytes) -> bytes:
        if self._over():
            return b""
        scan_from = max(0, len(self._tail) - 3)
        buffer = self._tail + data if self._tail else data
        passed: list[bytes] = []
        start = 0
        while boundary := _BLANK_LINE.search(buffer, scan_from):
            end = scan_from = boundary.end()
            if self._takes(buffer[start:end]):
                passed.append(buffer[start:end])
            start = end
            if self._over():
                self._tail = b""
                self._plain = False
                return b"".join(passed)
        self._tail = buffer[start:]
        if self._inside or len(self._tail) > EVENT_BYTES:
            passed.append(self._pass_part())
        self._plain = self.content and not self._tail and not self._inside
        return b"".join(passed)

    def _pass_part(self) -> bytes:
        """Let go of the beginning of an event that is too large to wait for.

        Its last bytes stay, for they may begin the blank line.
        """
        part, self._tail = self._tail[:-3], self._tail[-3:]
        if part:
            self.tokens += not self._inside
            self._inside = self.content = True
            self.events += 1
        return part

    def _takes(self, event: bytes) -> bool:
        """Read one event; false when it is not to be passed on."""
        if self._inside:
            self._inside = False
            return True
        payload = _payload(event)
        if payload is None:
            return True
        self.events += 1
        if payload == b"[DONE]":
            self.done = self.content = True
            return True
        return self._judge(payload)

    def _judge(self, payload: bytes) -> bool:
        """What the data of an event mean; false when it is not to be passed on."""
        try:
            chunk = _decode(payload)
        except msgspec.DecodeError:
            # Not ours to judge: it passes, but it proves no content.
            return True
        return self._weigh(chunk)

    def _fail(self, error: bytes) -> None:
        self.failure = error_message(error)
        self.refusal = error_refuses(error)

    def _weigh(self, chunk: _Chunk) -> bool:
        if not is_nothing(chunk.error):
            self._fail(bytes(chunk.error))
            return False
        choices = chunk.choices or []
        content = False
        for choice in choices:
            if choice.finish_reason == "abort":
                self.failure = "it aborted the request"
                return False
            if isinstance(choice.finish_reason, str) and choice.finish_reason:
                self.finish_reason = choice.finish_reason
                self.content = True
            delta = choice.delta
            if not is_nothing(choice.text) or (delta is not None and delta.any()):
                self.content = content = True
        self.tokens += content
        if chunk.usage is not None:
            self.usage = chunk.usage
            if self._strip_usage and not choices:
                return False
        return True


def _is_whole(payload: bytes | None) -> bool:
    if payload is None or payload == b"[DONE]":
        return payload is not None
    try:
        _decode(payload)
    except msgspec.DecodeError:
        return False
    return True


def _payload(event: bytes) -> bytes | None:
    """The data of an event, None for a comment."""
    lines = [
        line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")
    ]
    if not lines:
        return None
    return lines[0] if len(lines) == 1 else b"\n".join(lines)


def error_message(raw: bytes) -> str:
    """What an engine's error says, at most 300 characters of it."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        value = raw.decode("utf-8", "replace")
    if isinstance(value, dict):
        value = value.get("message", value)
    return str(value).strip().rstrip(".")[:300] or "an error without a message"


def error_refuses(raw: bytes) -> bool:
    """Whether an engine's error says that the request was wrong (4xx but 429)."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return False
    if not isinstance(value, dict):
        return False
    code = value.get("code")
    if isinstance(code, str) and code.isdecimal():
        code = int(code)
    if isinstance(code, int):
        return 400 <= code < 500 and code != 429
    return value.get("type") in ("invalid_request_error", "BadRequestError")
