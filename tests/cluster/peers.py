"""Servers that answer whatever a test wants, byte by byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Peer:
    """A server that answers each connection with whatever a test wants."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            thread.start()
            self.threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            self.asked.append(
                connection.recv(65_536).split(b"\r\n")[0].decode("latin-1")
            )
            self.answer(connection)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(10)


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
