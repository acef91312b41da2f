"""What the mock engine can be told to do, and the three ways of telling it.

Each field is a switch ``--delay-headers-ms 50`` at start, a field of the JSON in
``PUT /mock`` while it runs, and a field of the request header ``x-mock`` or the
body field ``x_mock`` for one request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

Amount = Annotated[int, msgspec.Meta(ge=0)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0)]
# Counts tokens; -1 stands for the moment before the head of the answer.
Position = Annotated[int, msgspec.Meta(ge=-1)]


class Switches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Faults concern the endpoints that generate; only ``health`` and ``refuse``
    touch others, and nothing touches ``/mock``.

    A whole answer (not streamed) comes after all delays of its tokens together;
    ``cut_after`` and ``stall_after`` send the same share of its bytes.
    """

    # Pace.
    delay_headers_ms: Milliseconds = 0
    delay_first_token_ms: Milliseconds = 0
    gap_ms: Milliseconds = 0
    # Content. ``tokens`` counts where a request sets no ``max_tokens``; set for a
    # single request, it wins over that.
    tokens: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 16
    finish_reason: str | None = None
    no_usage: bool = False
    # Unknown and null fields, unicode, CRLF, events cut and joined at odd places.
    odd_fields: bool = False
    # Pads the answer (streamed: its first token) by so many bytes.
    huge_body_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 30)] = 0
    gzip: bool = False
    # Endings.
    cut_after: Position | None = None
    stall_after: Position | None = None
    opening_only: bool = False
    silent_after_finish: bool = False
    no_done: bool = False
    in_band_error: Amount | Literal["before"] | None = None
    # Answers of another kind. ``headers`` are also added to good answers.
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] | None = None
    headers: dict[str, str] = {}
    body: Any = None
    fail_rate: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0
    seed: int = 0
    hang: bool = False
    # The connection and the health page.
    refuse: bool = False
    keep_alive_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    health: Literal["ok", "loading", "hang", "error"] = "ok"
    # Keeps the last 100 requests for ``GET /mock/requests``.
    record: bool = False


def switches_merge(base: Switches, changes: Mapping[str, Any]) -> Switches:
    """``base`` with these changes; ``msgspec.ValidationError`` names a wrong one."""
    return msgspec.convert({**msgspec.structs.asdict(base), **changes}, Switches)


def switches_decode(base: Switches, raw: bytes) -> Switches:
    """``base`` changed by a JSON object."""
    return switches_merge(base, msgspec.json.decode(raw, type=dict[str, Any]))
