"""Request ids: 32 hexadecimal digits that sort by time."""

from __future__ import annotations

import random
import re
import time

_rng = random.SystemRandom()
# Reading the kernel's randomness for each request would be a system call; ids
# must be unique, not secret.
_fast = random.Random(_rng.getrandbits(256))

_CLIENT_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}\Z")


def request_id(at: float | None = None) -> str:
    """48 bits of Unix milliseconds, then 80 random bits."""
    ms = int((time.time() if at is None else at) * 1000)
    return f"{ms:012x}{_fast.getrandbits(80):020x}"


def gateway_id() -> str:
    return f"gw-{_rng.getrandbits(48):012x}"


def client_request_id(raw: bytes | None) -> str:
    """A client's own id when it is well formed, else empty."""
    if raw is None or not _CLIENT_ID.match(raw):
        return ""
    return raw.decode("ascii")
