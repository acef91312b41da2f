"""Which port a replica listens on."""

from __future__ import annotations

import socket
from collections.abc import Collection


def listen_host(host: str) -> str:
    """The address to listen on: the node's own where it has it, else every one.

    Behind address translation the name that gateways use is not one of the
    machine's own addresses.
    """
    if _bound(host, 0) is not None:
        return host
    return "::" if ":" in host else "0.0.0.0"


def port_choose(host: str, *, kept: int, avoid: Collection[int]) -> int:
    """``kept`` if it is free, else a free one that nobody else keeps."""
    if kept and kept not in avoid and is_free(host, kept):
        return kept
    for _attempt in range(64):
        port = _bound(host, 0)
        if port is not None and port not in avoid:
            return port
    raise OSError(f"No free port on {host}.")


def is_free(host: str, port: int) -> bool:
    return _bound(host, port) is not None


def _bound(host: str, port: int) -> int | None:
    """The port that a listener could have right now, None if it could have none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        # Connections of the last process may linger; they do not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1)
        except (OSError, OverflowError):
            return None
        return int(listener.getsockname()[1])
