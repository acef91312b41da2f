"""The gateway with a draw that ignores the weights: the first listed version gets
everything. What the standing check is for."""

from __future__ import annotations

import sys
from typing import Any

from routing.balance.draw import Draw
from routing.gateway.__main__ import bind
from routing.gateway.config import GatewayConfig
from routing.gateway.gateway import Gateway
from routing.gateway.host import serve
from routing.gateway.logs import logs_configure


def first(self: Draw[Any], rng: object) -> tuple[Any, float]:
    return self._items[0], self._weights[0] / self._sums[-1]


if __name__ == "__main__":
    Draw.take = first  # type: ignore[method-assign]
    config = GatewayConfig.from_env()
    listening = bind(config)
    logs_configure()
    sys.exit(0 if serve(Gateway(config), listening) else 1)
