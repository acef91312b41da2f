"""The requests that a gateway has open at each replica, as it publishes them.

One Redis hash per gateway process, ``inflight_name``: replica id → JSON list of
``OpenRequest``. It is written anew every second, at once when a draining replica's
last request ends, and expires with the gateway's record. A gateway without any
request writes it too, with nothing but the field ``MARK``: only thus is a gateway
that has none told from one that does not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

# Sorted set of the ids of all gateways, and the record that a live one renews.
GATEWAYS = "sluice:gateways"
# No replica has this id.
MARK = "#"


def gateway_record_name(gateway_id: str) -> str:
    return f"sluice:gateway:{gateway_id}"


def inflight_name(gateway_id: str) -> str:
    return f"sluice:gateway:{gateway_id}#inflight"


class OpenRequest(msgspec.Struct, frozen=True, array_like=True):
    """``age_s`` is the age when this was written, ``tokens`` how many were passed on
    so far, ``streamed`` whether the client asked for a stream."""

    request_id: str
    team: str
    age_s: float
    streamed: bool
    tokens: int


def inflight_fields(
    requests: Mapping[str, Sequence[OpenRequest]],
) -> dict[str, bytes]:
    """The fields of a gateway's hash, ``MARK`` included."""
    fields = {id_: msgspec.json.encode(open_) for id_, open_ in requests.items()}
    return {MARK: b"[]"} | fields


def inflight_decode(
    fields: Mapping[bytes, bytes],
) -> dict[str, list[OpenRequest]] | None:
    """What a gateway has open at each replica; None when it does not say."""
    if MARK.encode() not in fields:
        return None
    try:
        return {
            id_.decode(): msgspec.json.decode(raw, type=list[OpenRequest])
            for id_, raw in fields.items()
            if id_ != MARK.encode()
        }
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
