"""Which versions a gateway process drew, counted at the draw.

Outcomes are counted when requests end, and slow versions end late: whoever compares
those with the weights accuses every slow version. Draws know no such delay. Each
gateway publishes them every second, absolute since it applied the generation, with
its record: they live as long as it does.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class RouteDraws(msgspec.Struct, frozen=True):
    """The draws by one generation of a route, by version; those of a client that
    chose its version are no draws.

    ``epoch`` is that of the snapshot and ``created`` the model's, in Unix seconds: a
    generation number alone may come again after a restored database or a deleted
    model.
    """

    epoch: int
    created: int
    generation: int
    drawn: dict[str, int]


_decoder = msgspec.json.Decoder(dict[str, RouteDraws])


def draws_encode(routes: Mapping[str, RouteDraws]) -> bytes:
    """By model."""
    return msgspec.json.encode(routes)


def draws_decode(body: bytes) -> dict[str, RouteDraws]:
    """Raises ``msgspec.DecodeError`` for what no gateway wrote."""
    return _decoder.decode(body)
