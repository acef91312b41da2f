"""The console as it runs, pages and websockets, in a thread of the test."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from channels.routing import ProtocolTypeRouter
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler


def _application() -> ProtocolTypeRouter:
    # Loaded late: it reads the settings, which the tests change first.
    from console import asgi

    pages = _patient(ASGIStaticFilesHandler(asgi.django_application))
    return ProtocolTypeRouter({"http": pages, "websocket": asgi.live_application})


def _patient(application: Any) -> Any:
    """Nobody cuts a request off whose page was left: a file that is just being opened
    for it would stay open. The product serves its files by other means."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        async def hear() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                # Cancelled when the answer is out.
                await asyncio.Event().wait()
            return message

        await application(scope, hear, send)

    return serve


class ConsoleServer:
    """A console on a port of its own, which a test may stop and start again."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = uvicorn.Config(
            _application(),
            host="127.0.0.1",
            port=self.port,
            log_config=None,
            lifespan="off",
            access_log=False,
            ws="websockets-sansio",
            timeout_graceful_shutdown=2,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 10
        while not self.server.started:
            assert time.monotonic() < deadline and self.thread.is_alive()
            time.sleep(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(timeout=10)
        assert not self.thread.is_alive()


@contextmanager
def console_server() -> Iterator[ConsoleServer]:
    server = ConsoleServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
