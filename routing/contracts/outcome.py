"""The single record of how one request ended."""

from __future__ import annotations

import enum

import msgspec


class Ending(enum.StrEnum):
    """How a request ended; ``code`` says why where it did not end well."""

    COMPLETED = "completed"
    REFUSED = "refused"
    UPSTREAM_FAILED = "upstream_failed"
    TIMED_OUT = "timed_out"
    BROKEN = "broken"
    CLIENT_LEFT = "client_left"


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One try on one replica; ``error`` is empty for the one that served."""

    replica: str
    version: str
    error: str = ""
    duration_ms: float = 0.0


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exactly one is emitted for each request that reached the gateway.

    ``first_version`` is the version that was drawn, ``first_probability`` the
    probability with which it was; ``version`` and ``replica`` are what served in
    the end. Durations are milliseconds from the arrival of the request's head;
    one that never came is None. ``code`` is the error code of the contract.
    """

    request_id: str
    at: float
    gateway: str
    method: str
    path: str
    status: int
    ending: Ending
    code: str = ""
    client: str = ""
    client_request_id: str = ""
    team: str = ""
    key: str = ""
    model: str = ""
    revision: int = 0
    generation: int = 0
    first_version: str = ""
    first_probability: float = 0.0
    version: str = ""
    replica: str = ""
    attempts: tuple[Attempt, ...] = ()
    streamed: bool = False
    connect_ms: float | None = None
    first_byte_ms: float | None = None
    first_content_ms: float | None = None
    duration_ms: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    bytes_in: int = 0
    bytes_out: int = 0
