"""The single record of how one request ended, and how records travel.

Each gateway process numbers its outcomes from 1, without a gap. They travel in
batches, JSON lines, through one Redis stream that is bounded in bytes: when nobody
reads it the oldest go, and the numbers that are missing say how many.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

import msgspec


class Ending(enum.StrEnum):
    """How a request ended; ``code`` says why where it did not end well."""

    COMPLETED = "completed"
    REFUSED = "refused"
    UPSTREAM_FAILED = "upstream_failed"
    TIMED_OUT = "timed_out"
    BROKEN = "broken"
    CLIENT_LEFT = "client_left"


class Why(enum.StrEnum):
    """Why the replica of an attempt was taken.

    ``ONLY``: no other was in its tier. ``LOWER_COST`` and ``TIE``: of the two that
    were compared it cost less, or as much. ``LEAST``: of all, it cost the least.
    ``TURN``: it was its turn. ``HASH``: the hash of the request led to it.
    ``OVERFLOW``: the hash led to one that had too much to do, then to this one.
    ``PREFIX``: it was sent the longest beginning of the prompt before.
    ``LOWER_PRESSURE``: of the two, its engine has more room.
    ``TRIAL``: it was due for the one request that tries an ejected replica.
    """

    ONLY = "only"
    LOWER_COST = "lower_cost"
    TIE = "tie"
    LEAST = "least"
    TURN = "turn"
    HASH = "hash"
    OVERFLOW = "overflow"
    PREFIX = "prefix"
    LOWER_PRESSURE = "lower_pressure"
    TRIAL = "trial"


class Tier(enum.StrEnum):
    """How good the replicas were among which one was chosen, best first."""

    READY = "ready"
    ELIGIBLE = "eligible"
    UNKNOWN = "unknown"
    SUSPECT = "suspect"
    OUT = "out"


class Choice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How the replica of one attempt was chosen among those of its version.

    ``of`` counts the replicas of the tier that were not tried yet, ``total`` all of
    the version. ``cost`` and ``other_cost`` are ``ReplicaState.cost`` of the winner
    and of the one it was compared with, ``other`` (empty for none).
    """

    tier: Tier
    why: Why
    of: int = 1
    total: int = 1
    cost: float = 0.0
    other: str = ""
    other_cost: float = 0.0


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One try on one replica; ``error`` is empty for the one that served.

    Milliseconds. ``at_ms`` runs from the arrival of the request; ``connect_ms`` is
    None when a connection was at hand.
    """

    replica: str
    version: str
    error: str = ""
    duration_ms: float = 0.0
    at_ms: float = 0.0
    connect_ms: float | None = None
    choice: Choice | None = None


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Exactly one is emitted for each request that reached the gateway.

    ``first_version`` is the version that was drawn, ``first_probability`` the
    probability with which it was (1 and ``chosen`` when the client chose it);
    ``version`` and ``replica`` are what served in the end, or was tried last. ``code``
    is the error code of the contract.

    Moments are milliseconds from the arrival of the request's first line, in this
    order; one that never came is None: ``received_ms`` the body was whole,
    ``authorized_ms`` its key was decided, ``admitted_ms`` the first attempt began
    (``queue_ms`` of the time before was spent waiting in the queue),
    ``first_byte_ms``, ``first_content_ms`` and ``last_byte_ms`` (its answer was whole)
    came from that replica, ``duration_ms`` the end.

    ``estimated`` marks tokens that the engine did not count: then prompt tokens are a
    quarter of the bytes received and completion tokens the events with content that
    were passed on. Both are None when no replica was sent the request.
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
    chosen: bool = False
    version: str = ""
    replica: str = ""
    attempts: tuple[Attempt, ...] = ()
    streamed: bool = False
    received_ms: float | None = None
    authorized_ms: float | None = None
    queue_ms: float = 0.0
    admitted_ms: float | None = None
    first_byte_ms: float | None = None
    first_content_ms: float | None = None
    last_byte_ms: float | None = None
    duration_ms: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    estimated: bool = False
    finish_reason: str = ""
    bytes_in: int = 0
    bytes_out: int = 0


outcome_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Outcome).decode


def outcome_decode(line: bytes) -> Outcome:
    """Raises ``msgspec.DecodeError`` (a ``ValidationError`` for wrong fields)."""
    return _decode(line)


class Batch(NamedTuple):
    """Outcomes of one gateway as one stream entry. ``first`` is the number of the first
    line; ``lines`` are encoded outcomes."""

    gateway: str
    first: int
    lines: list[bytes]


def batch_fields(
    gateway: str, first: int, lines: Iterable[bytes]
) -> dict[str, str | int | bytes]:
    """The fields of the stream entry."""
    return {"gateway": gateway, "first": first, "lines": b"\n".join(lines)}


def batch_read(fields: dict[bytes, bytes]) -> Batch:
    """Raises ``ValueError`` for an entry that no gateway wrote."""
    try:
        gateway = fields[b"gateway"].decode("ascii")
        first = int(fields[b"first"])
        lines = fields[b"lines"].split(b"\n")
    except (KeyError, ValueError) as error:
        raise ValueError(f"no batch of outcomes: {error!r}") from error
    if first < 1 or not 0 < len(gateway) <= 64:
        raise ValueError("no batch of outcomes: its numbers are impossible")
    return Batch(gateway, first, lines)


# Appends a batch and keeps the stream within its bytes, the oldest going first.
# KEYS: stream, byte count. ARGV: most bytes, then the fields of ``batch_fields`` as
# name, value, … with the lines last. Returns the number of entries dropped.
BATCH_APPEND = """
redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2))
local bytes = redis.call('INCRBY', KEYS[2], #ARGV[#ARGV])
local dropped = 0
while bytes > tonumber(ARGV[1]) do
  local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  if not oldest then
    redis.call('SET', KEYS[2], 0)
    break
  end
  redis.call('XDEL', KEYS[1], oldest[1])
  local fields = oldest[2]
  bytes = redis.call('DECRBY', KEYS[2], #fields[#fields])
  dropped = dropped + 1
end
return dropped
"""

# The same, only while the mark of the epoch is still the one that the sender knows: in
# a Redis that lost its data an older batch must come first. KEYS: stream, byte count,
# epoch. ARGV: known epoch, then as above. Returns -1 where nothing was appended.
BATCH_APPEND_IN_EPOCH = f"""
if redis.call('GET', KEYS[3]) ~= ARGV[1] then return -1 end
table.remove(ARGV, 1)
{BATCH_APPEND}"""

# Removes what was read. KEYS: stream, byte count. ARGV: entry ids. An id that is gone
# already counts nothing.
BATCH_DELETE = """
for _, id in ipairs(ARGV) do
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  if entry then
    local fields = entry[2]
    redis.call('XDEL', KEYS[1], id)
    redis.call('DECRBY', KEYS[2], #fields[#fields])
  end
end
if redis.call('XLEN', KEYS[1]) == 0 then redis.call('SET', KEYS[2], 0) end
return 1
"""
