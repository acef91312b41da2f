"""The whole of what a gateway needs to serve, as one numbered, frozen value.

Replica states, keys and credentials are not in it: they change without a new
revision and travel through their own feeds (``cluster.feed``).
"""

from __future__ import annotations

import hashlib

import msgspec

from routing.contracts.route import RouteSettings

SCHEMA = 1


class ReplicaEntry(msgspec.Struct, frozen=True):
    """``address`` is ``http://host:port``; a replica without one is left out."""

    id: str
    address: str


class VersionEntry(msgspec.Struct, frozen=True):
    """Versions of weight 0 are listed too: a key may be allowed to choose one."""

    name: str
    engine: str
    served_name: str
    weight_bp: int
    replicas: tuple[ReplicaEntry, ...]


class RouteEntry(msgspec.Struct, frozen=True):
    """``created`` is Unix seconds, as ``/v1/models`` shows it."""

    model: str
    kind: str
    created: int
    generation: int
    settings: RouteSettings
    versions: tuple[VersionEntry, ...]


class Snapshot(msgspec.Struct, frozen=True):
    """``epoch`` grows when a database lost revisions that gateways have seen; the
    pair (epoch, revision) never goes backwards at a gateway."""

    schema: int
    epoch: int
    revision: int
    created_at: float
    routes: tuple[RouteEntry, ...]


class SchemaUnknown(ValueError):
    """The body was written by a newer release than this one."""


_decoder = msgspec.json.Decoder(Snapshot)
_peek = msgspec.json.Decoder(msgspec.defstruct("_Peek", [("schema", int)]))


def snapshot_encode(snapshot: Snapshot) -> bytes:
    return msgspec.json.encode(snapshot)


def snapshot_decode(body: bytes | str) -> Snapshot:
    """Raises ``SchemaUnknown`` for a newer schema, ``msgspec.DecodeError`` for junk."""
    schema = getattr(_peek.decode(body), "schema", 0)
    if schema != SCHEMA:
        raise SchemaUnknown(f"snapshot schema {schema}, this release reads {SCHEMA}")
    return _decoder.decode(body)


def routes_digest(routes: tuple[RouteEntry, ...]) -> str:
    """SHA-256 over the content: equal digests mean that nothing changed."""
    return hashlib.sha256(msgspec.json.encode(routes)).hexdigest()
