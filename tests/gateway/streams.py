"""Clients that stream again and again, through whatever opens a stream for them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

# Sends a request for a stream; whoever calls it reads the answer and closes it.
Opens = Callable[[], socket.socket]


class Streams:
    """Threads that stream one answer after another until told to end; those that
    came to their end took ``durations_s``."""

    def __init__(self, opens: Opens, count: int) -> None:
        self.opens = opens
        self.ended = threading.Event()
        self.durations_s: list[float] = []
        self.threads = [threading.Thread(target=self._run) for _ in range(count)]

    def __enter__(self) -> Streams:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join(30)

    def _run(self) -> None:
        while not self.ended.is_set():
            began = time.monotonic()
            if stream_once(self.opens, self.ended):
                self.durations_s.append(time.monotonic() - began)


def stream_once(opens: Opens, given_up: threading.Event) -> bool:
    """One stream to its end; false if it broke or the test ended before it."""
    connection = opens()
    connection.settimeout(0.5)
    data = b""
    try:
        while b"data: [DONE]" not in data:
            try:
                part = connection.recv(65536)
            except TimeoutError:
                if given_up.is_set():
                    return False
                continue
            if not part:
                return False
            data += part
        return True
    finally:
        connection.close()
