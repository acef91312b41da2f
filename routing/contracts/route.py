"""What an admin may set about a route; every field acts on the wire."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated

import msgspec

WEIGHT_TOTAL_BP = 10_000

Seconds = Annotated[float, msgspec.Meta(ge=0.1, le=86_400)]


class Strategy(enum.StrEnum):
    """How a replica of the drawn version is chosen."""

    POWER_OF_TWO = "power_of_two"


class Timeouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds. ``first_content`` runs from sending the request to the first token
    (or the complete answer when not streamed), ``idle`` between bytes after it,
    ``total`` over everything, retries included."""

    connect_s: Seconds = 5.0
    first_content_s: Seconds = 120.0
    idle_s: Seconds = 60.0
    total_s: Seconds = 600.0


class RouteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``retries`` is the number of further replicas tried before any content."""

    strategy: Strategy = Strategy.POWER_OF_TWO
    timeouts: Timeouts = Timeouts()
    retries: Annotated[int, msgspec.Meta(ge=0, le=3)] = 1


def settings_decode(value: object) -> RouteSettings:
    """Settings from plain JSON values; ``msgspec.ValidationError`` names the field."""
    return msgspec.convert(value, RouteSettings)


def weights_problem(weights: Mapping[str, int]) -> str | None:
    """Why these weights cannot stand (``negative``, ``sum``), or None.

    No versions at all is the state of a model without versions, and stands.
    """
    if any(weight < 0 for weight in weights.values()):
        return "negative"
    if weights and sum(weights.values()) != WEIGHT_TOTAL_BP:
        return "sum"
    return None
