"""What a request is to stay with, where its route keeps requests together."""

from __future__ import annotations

from typing import Any

import msgspec

from routing.balance.hashing import chain_of, hash_of
from routing.contracts.route import HashOn, RouteSettings, Strategy
from routing.gateway.request import Request

# So much of a prompt in one piece is its beginning.
PROMPT_BYTES = 1024


class _Message(msgspec.Struct):
    role: Any = None
    content: msgspec.Raw = msgspec.Raw()


class _Fields(msgspec.Struct):
    user: Any = None
    messages: list[_Message] | None = None
    prompt: msgspec.Raw = msgspec.Raw()


class _Prompt(msgspec.Struct):
    messages: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Fields).decode
_decode_prompt = msgspec.json.Decoder(_Prompt).decode


def affinity_of(settings: RouteSettings, request: Request, key: str) -> tuple[int, ...]:
    """Its hashes, as the strategy of the route wants them; none where it wants none.

    ``key`` is the id of the API key, for a request that lacks what its route goes by.
    """
    if settings.strategy is Strategy.CONSISTENT_HASH:
        return (_kind(settings, request, key),)
    if settings.strategy is Strategy.PREFIX_AFFINITY:
        return _chain(request.body)
    return ()


def _kind(settings: RouteSettings, request: Request, key: str) -> int:
    text = b""
    if settings.hash_on is HashOn.HEADER:
        text = request.headers.get(settings.hash_header.lower().encode(), b"")
    elif settings.hash_on is not HashOn.KEY:
        text = _of_body(settings.hash_on, request.body)
    # No key looks like a text of another kind.
    return hash_of(
        b"%b:%b" % (settings.hash_on.encode(), text) if text else key.encode()
    )


def _of_body(hash_on: HashOn, body: bytes) -> bytes:
    try:
        fields = _decode(body)
    except msgspec.DecodeError:
        # The engine will say what is wrong with it.
        return b""
    if hash_on is HashOn.USER:
        return fields.user.encode() if isinstance(fields.user, str) else b""
    return _beginning(fields.messages or []) or bytes(fields.prompt)[:PROMPT_BYTES]


def _beginning(messages: list[_Message]) -> bytes:
    """Of a conversation: all up to the first message of its user."""
    parts: list[bytes] = []
    for message in messages:
        parts.append(bytes(message.content))
        if message.role == "user":
            break
    return b"\n".join(parts)


def _chain(body: bytes) -> tuple[int, ...]:
    """Of the messages as they were written, or the prompt: a client that goes on with a
    conversation sends the same bytes and more."""
    try:
        fields = _decode_prompt(body)
    except msgspec.DecodeError:
        return ()
    return chain_of(bytes(fields.messages or fields.prompt or fields.input))
