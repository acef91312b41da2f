"""The few fields of a request body that routing needs, and the byte-true rest.

The body goes on as it came, except for the value of the top-level ``model``, for a
stream whose tokens are to be counted ``stream_options.include_usage``, and for a route
with a limit the most tokens of the answer.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from routing.gateway.errors import Problem, Refusal, invalid_request
from routing.gateway.scan import members

_FIRST_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
_FIELD = re.compile(r" - at `\$\.?([^`]*)`")
_ASK_USAGE = b'"stream_options":{"include_usage":true}'


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Fields(msgspec.Struct):
    model: str
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


_decode = msgspec.json.Decoder(_Fields).decode


class Peek(NamedTuple):
    """``wants_usage``: the client itself asked for the usage of its stream."""

    model: str
    stream: bool
    wants_usage: bool
    has_stream_options: bool


def peek(body: bytes) -> Peek:
    """Raises ``Refusal`` (400) for junk; a repeated key counts as its last value."""
    try:
        fields = _decode(body)
    except msgspec.ValidationError as error:
        raise Refusal(_invalid_field(str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(invalid_request(f"The body is no JSON: {error}.")) from error
    options = fields.stream_options
    return Peek(
        model=fields.model,
        stream=bool(fields.stream),
        wants_usage=options is not None and bool(options.include_usage),
        has_stream_options=options is not None,
    )


def _invalid_field(message: str) -> Problem:
    if message.startswith("Object missing required field"):
        return invalid_request("The field model is missing.", "model")
    found = _FIELD.search(message)
    param = found[1] if found and found[1] else None
    reason = message.partition(" - at ")[0]
    where = f"The field {param} is wrong: " if param else "The body is wrong: "
    return invalid_request(f"{where}{reason[0].lower()}{reason[1:]}.", param)


def rewrite(
    body: bytes,
    peeked: Peek,
    served_name: str,
    ask_usage: bool,
    max_tokens: int = 0,
    most_tokens: tuple[str, ...] = (),
) -> bytes:
    """The body as the replica gets it.

    ``max_tokens`` is the most that any of the fields ``most_tokens`` may ask for, the
    first of which is added where none of them is there; 0 leaves them all alone. Never
    fails on a body that ``peek`` has read.
    """
    ask_usage = ask_usage and not peeked.wants_usage
    name = msgspec.json.encode(served_name)
    if max_tokens and most_tokens:
        return _rewrite_exact(body, name, ask_usage, max_tokens, most_tokens)
    fast = None
    if not ask_usage or not (peeked.has_stream_options or b"stream_options" in body):
        fast = _rewrite_plain(body, name, ask_usage)
    return fast if fast is not None else _rewrite_exact(body, name, ask_usage)


def _rewrite_plain(body: bytes, name: bytes, ask_usage: bool) -> bytes | None:
    r"""The common case without a scan; None where it does not surely apply.

    Bytes ``"model"`` that stand only once, in a body that escapes no ASCII letter
    (``\u00..``), can only be the top-level key that the decoder found.
    """
    if body.count(b'"model"') != 1 or b"\\u00" in body:
        return None
    found = _FIRST_MODEL.search(body)
    if found is None:
        return None
    start, end = found.span(1)
    if not ask_usage:
        return body[:start] + name + body[end:]
    brace = body.index(b"{") + 1
    return b"%b%b,%b%b%b" % (
        body[:brace],
        _ASK_USAGE,
        body[brace:start],
        name,
        body[end:],
    )


def _rewrite_exact(
    body: bytes,
    name: bytes,
    ask_usage: bool,
    max_tokens: int = 0,
    most_tokens: tuple[str, ...] = (),
) -> bytes:
    edits: list[tuple[int, int, bytes]] = []
    options_found = limit_found = False
    for key, start, end in members(body):
        if key == "model":
            edits.append((start, end, name))
        elif key in most_tokens:
            limit_found = True
            if _exceeds(body[start:end], max_tokens):
                edits.append((start, end, b"%d" % max_tokens))
        elif key == "stream_options" and ask_usage:
            options_found = True
            edits.append((start, end, _with_usage(body[start:end])))
    added = b""
    if ask_usage and not options_found:
        added = _ASK_USAGE + b","
    if max_tokens and not limit_found:
        added += b'"%b":%d,' % (most_tokens[0].encode(), max_tokens)
    if added:
        brace = body.index(b"{") + 1
        edits.insert(0, (brace, brace, added))
    return _apply(body, edits)


def _exceeds(raw: bytes, most: int) -> bool:
    """Whether this asks for more than so many tokens: null and negative numbers ask for
    as many as there are. What is no number is for the engine to refuse."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        # A number beyond all bounds.
        return True
    if value is None:
        return True
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and not 0 <= value <= most


def _with_usage(raw: bytes) -> bytes:
    """Stream options (an object, or null) that ask for usage, and keep all else."""
    if not raw.startswith(b"{"):
        return b'{"include_usage":true}'
    spans = list(members(raw))
    edits = [(s, e, b"true") for key, s, e in spans if key == "include_usage"]
    if not edits:
        comma = b"," if spans else b""
        edits.append((1, 1, b'"include_usage":true' + comma))
    return _apply(raw, edits)


def _apply(body: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    parts: list[bytes] = []
    position = 0
    for start, end, replacement in edits:
        parts += (body[position:start], replacement)
        position = end
    parts.append(body[position:])
    return b"".join(parts)
