"""One line per request, its outcome, on standard output, beside the traffic.

Lines are collected and handed to a thread, because a pipe that nobody empties would
stop the loop. What does not fit is dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from concurrent.futures import Future, ThreadPoolExecutor

FLUSH_S = 0.5
# Handing over to the thread costs more than the writing itself.
FLUSH_BYTES = 1024 * 1024
HELD_BYTES = 8 * 1024 * 1024


class AccessLog:
    """``dropped`` counts lines that found the buffer full."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._lines: list[bytes] = []
        self._held = 0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="access-log")
        self._writing: Future[None] | None = None
        self.dropped = 0

    def write(self, line: bytes) -> None:
        """``line`` comes without its end."""
        self._held += len(line)
        if self._held > HELD_BYTES:
            self._held -= len(line)
            self.dropped += 1
            return
        self._lines.append(line)
        if self._held > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand over what was collected, unless the last lot is still on its way."""
        if not self._lines or (self._writing and not self._writing.done()):
            return
        lines, self._lines, self._held = self._lines, [], 0
        lines.append(b"")
        self._writing = self._writer.submit(self._write, b"\n".join(lines))

    async def run(self) -> None:
        """Flush twice a second until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            self.flush()

    def close(self, within_s: float = 2.0) -> None:
        """Write what is left, but wait no longer than this for a stuck reader."""
        for _rest in range(2):
            if self._writing is not None:
                with contextlib.suppress(TimeoutError):
                    self._writing.result(within_s)
            self.flush()
        if self._writing is not None:
            with contextlib.suppress(TimeoutError):
                self._writing.result(within_s)
        self._writer.shutdown(wait=False, cancel_futures=True)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        with contextlib.suppress(OSError):
            while view:
                view = view[os.write(self._descriptor, view) :]
