"""Reading the event stream of ``/v1/responses``.

Its events carry their type. Text and arguments come in deltas, and the last event holds
the whole answer with its usage; there is no ``[DONE]``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from routing.gateway.sse import SseReader, is_nothing
from routing.gateway.usage import Usage

_ENDINGS = {"response.completed": "stop", "response.incomplete": "length"}
_FAILURES = ("response.failed", "error")


class _Whole(msgspec.Struct):
    error: msgspec.Raw = msgspec.Raw()
    usage: Usage | None = None


class _Event(msgspec.Struct):
    type: Any = None
    delta: msgspec.Raw = msgspec.Raw()
    response: _Whole | None = None
    error: msgspec.Raw = msgspec.Raw()
    message: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class ResponsesReader(SseReader):
    """As its base, over typed events."""

    __slots__ = ()

    def _judge(self, payload: bytes) -> bool:
        try:
            event = _decode(payload)
        except msgspec.DecodeError:
            return True
        whole = event.response or _Whole()
        if event.type in _FAILURES or not is_nothing(event.error):
            if error := bytes(event.error) or bytes(whole.error):
                self._fail(error)
            else:
                self.failure = str(event.message or "it failed without a message")[:300]
            return False
        if event.type in _ENDINGS:
            self.finish_reason = _ENDINGS[event.type]
            self.usage = whole.usage
            self.done = self.content = True
        elif str(event.type).endswith(".delta") and not is_nothing(event.delta):
            self.content = True
            self.tokens += 1
        return True
