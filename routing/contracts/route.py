"""What an admin may set about a route; every field acts on the wire."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated

import msgspec

WEIGHT_TOTAL_BP = 10_000

HeaderName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]*\Z", max_length=64)]
Seconds = Annotated[float, msgspec.Meta(ge=0.1, le=86_400)]


class Strategy(enum.StrEnum):
    """How a replica of the drawn version is chosen."""

    POWER_OF_TWO = "power_of_two"
    LEAST_INFLIGHT = "least_inflight"
    ROUND_ROBIN = "round_robin"
    CONSISTENT_HASH = "consistent_hash"
    PREFIX_AFFINITY = "prefix_affinity"
    QUEUE_AWARE = "queue_aware"


class HashOn(enum.StrEnum):
    """What keeps requests together under ``CONSISTENT_HASH``: the API key, the field
    ``user`` of the body, a header, or the beginning of the conversation, up to its
    first message by a user. A request without it goes by its key."""

    KEY = "key"
    USER = "user"
    HEADER = "header"
    CONVERSATION = "conversation"


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds. ``first_content`` runs from sending the request to the first token
    (or the complete answer when not streamed), ``idle`` between bytes after it,
    ``total`` over everything, retries included."""

    connect_s: Seconds = 5.0
    first_content_s: Seconds = 120.0
    idle_s: Seconds = 60.0
    total_s: Seconds = 600.0


class RouteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``retries`` is the number of further replicas tried before any content.
    ``hash_on`` and ``hash_header``, the name of a header, count under
    ``CONSISTENT_HASH`` only. ``max_tokens`` is the most that one answer may have, 0 for
    no limit of the route's own: a request that asks for more, or for none, gets it."""

    strategy: Strategy = Strategy.POWER_OF_TWO
    hash_on: HashOn = HashOn.KEY
    hash_header: HeaderName = ""
    timeouts: Timeouts = Timeouts()
    retries: Annotated[int, msgspec.Meta(ge=0, le=3)] = 1
    max_tokens: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0


def settings_decode(value: object) -> RouteSettings:
    """Settings from plain JSON values; ``msgspec.ValidationError`` names the field."""
    settings = msgspec.convert(value, RouteSettings)
    if settings.hash_on is HashOn.HEADER and not settings.hash_header:
        raise msgspec.ValidationError("Expected the header's name - at `$.hash_header`")
    return settings


def weights_problem(weights: Mapping[str, int]) -> str | None:
    """Why these weights cannot stand (``negative``, ``sum``), or None.

    No versions at all is the state of a model without versions, and stands.
    """
    if any(weight < 0 for weight in weights.values()):
        return "negative"
    if weights and sum(weights.values()) != WEIGHT_TOTAL_BP:
        return "sum"
    return None
