"""The gateway that takes silence for a hang ten times as soon: for tests that wait
to see that it does not."""

from __future__ import annotations

import sys

from cluster.health import patience
from routing.balance import state
from routing.gateway import passive
from routing.gateway.__main__ import bind
from routing.gateway.config import GatewayConfig
from routing.gateway.gateway import Gateway
from routing.gateway.host import serve
from routing.gateway.logs import logs_configure

if __name__ == "__main__":
    for module in (patience, passive, state):
        vars(module)["HANG_S"] /= 10
    passive.HANG_EJECT_LATER_S /= 10
    config = GatewayConfig.from_env()
    listening = bind(config)
    logs_configure()
    sys.exit(0 if serve(Gateway(config), listening) else 1)
