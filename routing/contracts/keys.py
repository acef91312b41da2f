"""API keys as they travel: the text a client sends, the entry a gateway reads.

A key is ``sk-``, 12 characters that identify it, 36 secret ones. The entry holds
a SHA-256 of the whole text; 36 random characters of base 36 carry 186 bits, so a
slow hash would add nothing but load.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from typing import NamedTuple

import msgspec

_ALPHABET = string.ascii_lowercase + string.digits
_KEY = re.compile(r"sk-([a-z0-9]{12})[a-z0-9]{36}\Z")

SCOPE_CHOOSE_VERSION = "choose_version"
SCOPES = (SCOPE_CHOOSE_VERSION,)


class KeyText(NamedTuple):
    """A fresh key: shown once, never stored."""

    text: str
    public_id: str


class KeyEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One key in Redis. ``models`` None means every model; ``expires_at`` is Unix
    seconds, 0 for never. ``active`` is false for a revoked key and for every key
    of a disabled team."""

    id: str
    secret_sha256: str
    team: str
    name: str = ""
    active: bool = True
    models: tuple[str, ...] | None = None
    scopes: tuple[str, ...] = ()
    expires_at: float = 0.0


def key_generate() -> KeyText:
    characters = "".join(secrets.choice(_ALPHABET) for _ in range(48))
    return KeyText(text=f"sk-{characters}", public_id=characters[:12])


def key_public_id(text: str) -> str | None:
    """The public part of a well-formed key, else None."""
    match = _KEY.match(text)
    return match[1] if match else None


def key_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def key_matches(entry: KeyEntry, text: str) -> bool:
    """Whether the text is this key; takes the same time for every wrong one."""
    return hmac.compare_digest(entry.secret_sha256, key_hash(text))


def key_decode(body: bytes) -> KeyEntry:
    return msgspec.json.decode(body, type=KeyEntry)
