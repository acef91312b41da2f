"""Hosting our protocol in uvicorn's server. The only file that knows uvicorn.

It relies on what uvicorn does not promise, hence the exact pin and a contract test:
the protocol factory's arguments (``config``, ``server_state``, ``app_state``,
``_loop``), ``server_state.connections`` with ``shutdown()`` on each, ``startup`` and
``shutdown(sockets)`` as overridable steps, ``servers``, ``handle_exit`` and the
captured signals that it would raise again at the end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
from types import FrameType
from typing import Any, cast

import uvicorn

from routing.gateway.front import Front
from routing.gateway.gateway import Gateway
from routing.gateway.http_server import HttpServer

log = logging.getLogger(__name__)

BACKLOG = 4096
# After the last event of a broken stream: time for it to leave the machine.
FLUSH_S = 1.0


class Server(uvicorn.Server):
    """uvicorn's sockets and signals, with our protocol and our way to end."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._front = Front(gateway)
        self._connections: set[HttpServer] = set()
        super().__init__(
            uvicorn.Config(
                app=_no_application,
                http=_factory(self._front, self._connections),
                loop="uvloop",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=None,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._gateway.start()
        await super().startup(sockets)
        # What is there now stays; requests leave no cycles for the collector.
        gc.collect()
        gc.freeze()
        for listening in sockets or []:
            host, port = listening.getsockname()[:2]
            log.info(
                "gateway listens on %s:%s",
                host,
                port,
                extra={
                    "data": {
                        "gateway": self._gateway.id,
                        "pid": os.getpid(),
                        "port": port,
                    }
                },
            )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, let requests end within the drain time, break the rest."""
        log.info("gateway drains")
        self._gateway.draining = True
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        for connection in list(self._connections):
            connection.shutdown()
        await self._all_closed(self._gateway.config.drain_s)
        for connection in list(self._connections):
            connection.break_off()
        await self._all_closed(FLUSH_S)
        for connection in list(self._connections):
            connection.transport.abort()
        # Each tells the outcome of its request as it goes, in the loop's next turns.
        await self._all_closed(FLUSH_S, even_if_forced=True)
        await self._gateway.stop()
        log.info("gateway ended")

    async def _all_closed(
        self, within_s: float, *, even_if_forced: bool = False
    ) -> None:
        """Until no connection is left, the time is over or a second signal comes."""
        deadline = asyncio.get_running_loop().time() + within_s
        while self._connections and (even_if_forced or not self.force_exit):
            if asyncio.get_running_loop().time() >= deadline:
                return
            await asyncio.sleep(0.02)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, a second one ends at once.

        The signal is not kept: uvicorn would raise it again at the end, and a
        drained gateway exits with 0.
        """
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True


def serve(gateway: Gateway, listening: socket.socket) -> bool:
    """Serve until told to end; false when that was not in peace."""
    server = Server(gateway)
    server.run(sockets=[listening])
    return not server.force_exit


def _factory(front: Front, connections: set[HttpServer]) -> type[asyncio.Protocol]:
    """Typed as the class that uvicorn says it wants; it only ever calls it."""

    def protocol(**_given_by_uvicorn: Any) -> asyncio.Protocol:
        return HttpServer(front, connections)

    return cast("type[asyncio.Protocol]", protocol)


async def _no_application(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("the gateway answers without an ASGI application")
