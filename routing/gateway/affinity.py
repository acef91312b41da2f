"""What a request is to stay with, where its route keeps requests together."""

from __future__ import annotations

from typing import Any

import msgspec

from routing.balance.hashing import hash_of
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


_decode = msgspec.json.Decoder(_Fields).decode


def affinity_of(settings: RouteSettings, request: Request, key: str) -> int:
    """Its hash, 0 where the route does not keep requests together. ``key`` is the id of
    the API key, for a request that lacks what its route goes by."""
    if settings.strategy is not Strategy.CONSISTENT_HASH:
        return 0
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
