"""The gateway with a status line held for a moment only: for tests of waiting."""

from __future__ import annotations

import sys

import msgspec

from routing.gateway.__main__ import bind
from routing.gateway.config import GatewayConfig
from routing.gateway.gateway import Gateway
from routing.gateway.host import serve
from routing.gateway.logs import logs_configure

if __name__ == "__main__":
    config = msgspec.structs.replace(GatewayConfig.from_env(), hold_s=0.3)
    listening = bind(config)
    logs_configure()
    sys.exit(0 if serve(Gateway(config), listening) else 1)
