"""``python -m routing.gateway``: one gateway worker.

Several may share one port: each binds its own socket with SO_REUSEPORT.
"""

from __future__ import annotations

import socket
import sys

from routing.gateway.config import ConfigError, GatewayConfig
from routing.gateway.gateway import Gateway
from routing.gateway.host import BACKLOG, serve
from routing.gateway.logs import logs_configure


def main() -> int:
    """0 after a drain, 1 when cut short, 2 when it could not start."""
    try:
        config = GatewayConfig.from_env()
        listening = bind(config)
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    logs_configure()
    return 0 if serve(Gateway(config), listening) else 1


def bind(config: GatewayConfig) -> socket.socket:
    """A listening socket; raises ``ConfigError`` when the address cannot be had."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((config.host, config.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"The gateway cannot listen on {config.host}:{config.port}: "
            f"{error.strerror}."
        ) from error
    listening.setblocking(False)
    return listening


if __name__ == "__main__":
    sys.exit(main())
