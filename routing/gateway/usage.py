"""Tokens: as the engine counted them, else as well as they can be estimated."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

# No request has more; a larger number is nonsense that no sum should carry on.
_MOST = 10**12
# The usage of an answer stands before or after all that is long.
END_BYTES = 1024
_USAGE = re.compile(rb'"usage"\s*:\s*(\{(?:[^{}]|\{[^{}]*\})*\})')


class Tokens(NamedTuple):
    """``estimated``: the engine did not count them."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    estimated: bool = False


NO_TOKENS = Tokens(0, 0)


class Usage(msgspec.Struct):
    """Token counts as the engine gave them; whatever is no number counts as none."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    total_tokens: Any = None
    prompt_tokens_details: Any = None
    # The same as ``/v1/responses`` calls it.
    input_tokens: Any = None
    output_tokens: Any = None
    input_tokens_details: Any = None

    def tokens(self) -> Tokens | None:
        """None where it says nothing of use. What generates nothing, or says only a
        total, has no completion tokens."""
        completion = _count(self.completion_tokens) or _count(self.output_tokens) or 0
        prompt, total = _count(self.prompt_tokens), _count(self.total_tokens)
        if prompt is None:
            prompt = _count(self.input_tokens)
        if prompt is None and total is not None:
            prompt = max(0, total - completion)
        if prompt is None:
            return None
        return Tokens(prompt, completion, self._cached())

    def _cached(self) -> int | None:
        details = self.prompt_tokens_details or self.input_tokens_details
        return _count(details.get("cached_tokens")) if type(details) is dict else None


_decode = msgspec.json.Decoder(Usage).decode


def usage_at_ends(first: bytes, last: bytes) -> Usage | None:
    """The usage of an answer that was too long to hold, from both its ends. A quotation
    mark inside a text is escaped, so no text can look like one."""
    found = _USAGE.findall(last) or _USAGE.findall(first)
    try:
        return _decode(found[-1]) if found else None
    except msgspec.DecodeError:
        return None


def estimate(bytes_in: int, events: int) -> Tokens:
    """About four bytes make a token of a prompt, and each event holds one."""
    return Tokens(bytes_in // 4, events, None, True)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST else None
