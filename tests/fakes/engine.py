"""The mock engine as a real process, for tests."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from cluster.engines.mock.counters import Counters
from cluster.engines.mock.switches import Switches

ROOT = Path(__file__).resolve().parents[2]


class MockEngine:
    """``python -m cluster.engines.mock`` on a port of the kernel's choice.

        with MockEngine(gap_ms=20) as engine:
            ... engine.address ...
            engine.set(cut_after=3)

    It ends with the block, and with the test process however that ends. ``port``
    is for starting one again where a killed one was.
    """

    def __init__(self, *, model: str = "mock", port: int = 0, **switches: Any) -> None:
        self.model = model
        self.host = "127.0.0.1"
        self.port = port
        self.switches = switches
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the mock engine does not run"
        return self.process.pid

    def start(self) -> MockEngine:
        command = [sys.executable, "-m", "cluster.engines.mock", "--with-stdin"]
        command += ["--model", self.model, "--port", str(self.port)]
        for name, value in self.switches.items():
            command += [f"--{name.replace('_', '-')}={json.dumps(value)}"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the mock engine ended with {self._reap()}")
        self.port = json.loads(line)["port"]
        return self

    def __enter__(self) -> MockEngine:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """SIGTERM, and waits until it is gone; nothing where it does not run."""
        if self.process is not None:
            self.process.terminate()
            self._reap()

    def kill(self) -> None:
        """SIGKILL; ``start`` brings it back on the same port."""
        if self.process is not None:
            self.process.kill()
            self._reap()

    def _reap(self) -> int:
        process, self.process = self.process, None
        assert process is not None
        with process:
            return process.wait(timeout=10)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request to its control pages; the JSON of the answer."""
        client = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            sent = None if body is None else json.dumps(body)
            client.request(method, path, sent)
            answer = client.getresponse()
            value = json.loads(answer.read())
        finally:
            client.close()
        if answer.status != 200:
            raise ValueError(value["error"]["message"])
        return value

    def set(self, **switches: Any) -> Switches:
        """Changes these switches and leaves the others."""
        return msgspec.convert(self.request("PUT", "/mock", switches), Switches)

    def reset(self) -> None:
        """Switches as at start, counters and recorded requests empty."""
        for path in ("/mock", "/mock/counters", "/mock/requests"):
            self.request("DELETE", path)

    def counters(self) -> Counters:
        return msgspec.convert(self.request("GET", "/mock/counters"), Counters)

    def requests(self) -> list[dict[str, Any]]:
        """What it received since ``record=True``: method, path, headers, body."""
        recorded: list[dict[str, Any]] = self.request("GET", "/mock/requests")
        return recorded

    def counters_when(
        self, reached: Callable[[Counters], bool], *, within_s: float = 15.0
    ) -> Counters:
        """The first counters for which this holds; ``AssertionError`` if none do."""
        deadline = time.monotonic() + within_s
        while not reached(counters := self.counters()):
            assert time.monotonic() < deadline, f"not reached: {counters}"
            time.sleep(0.005)
        return counters
