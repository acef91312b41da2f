"""The whole product, started as a user starts it, in a folder of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from openai import OpenAI

ROOT = Path(__file__).parent.parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(condition: Callable[[], Any], *, within_s: float) -> Any:
    """The first true value of the condition; asserts that it comes in time."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.05)
    return value


class Product:
    """``manage.py up`` on free ports; ``lines`` is what it said on the terminal."""

    def __init__(self, data_dir: Path, *arguments: str, **environment: str) -> None:
        self.data_dir = data_dir
        self.console = f"http://127.0.0.1:{free_port()}"
        self.gateway = f"http://127.0.0.1:{free_port()}"
        self.lines: list[str] = []
        self.arguments = arguments
        self.environment = (
            {k: v for k, v in os.environ.items() if k not in ("REDIS_URL",)}
            | {
                "SLUICE_DATA_DIR": str(data_dir),
                "SLUICE_CONSOLE_BIND": self.console.removeprefix("http://"),
                "SLUICE_GATEWAY_BIND": self.gateway.removeprefix("http://"),
                "SLUICE_GATEWAY_WORKERS": "2",
                "DATABASE_URL": "",
            }
            | environment
        )
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", *self.arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=[self.process], daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.lines.append(line.rstrip())

    def wait_ready(self, within_s: float = 120) -> None:
        def ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, "\n".join(self.lines)
            return any(" is ready " in line for line in self.lines)

        try:
            eventually(ready, within_s=within_s)
        except AssertionError as error:
            raise AssertionError("\n".join(self.lines)) from error

    def stop(self, number: int = signal.SIGINT, within_s: float = 60) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=within_s)

    def processes(self) -> list[psutil.Process]:
        """Every live process of this instance, by the data directory it was given."""
        mark = f"SLUICE_DATA_DIR={self.data_dir}"
        found = []
        for process in psutil.process_iter():
            try:
                variables = process.environ()
                command = process.cmdline()
            except (psutil.Error, OSError):
                continue
            mine = variables.get("SLUICE_DATA_DIR") == mark.partition("=")[2]
            if mine or any(str(self.data_dir) in part for part in command):
                found.append(process)
        return found

    def pid(self, name: str) -> int:
        """Of a process, as the supervisor last said."""
        lines = [line for line in self.lines if f"  {name} started (pid " in line]
        return int(lines[-1].rpartition("pid ")[2].rstrip(")"))

    def secret(self, name: str) -> str:
        return (self.data_dir / name).read_text().strip()

    def api(self) -> httpx.Client:
        """The management API, as the admin token's owner."""
        return httpx.Client(
            base_url=f"{self.console}/api/v1",
            headers={"Authorization": f"Bearer {self.secret('admin-token')}"},
            timeout=10,
            trust_env=False,
        )

    def openai(self, **options: Any) -> OpenAI:
        return OpenAI(
            base_url=f"{self.gateway}/v1",
            api_key=self.secret("demo-key"),
            timeout=30,
            **options,
        )

    def states(self) -> dict[str, str]:
        with self.api() as api:
            items = api.get("/replicas").json()["items"]
        return {item["id"]: item["state"]["label"] for item in items}

    def wait_replicas_healthy(self, count: int, within_s: float = 120) -> None:
        def healthy() -> bool:
            return list(self.states().values()).count("healthy") == count

        eventually(healthy, within_s=within_s)


@contextmanager
def running(product: Product) -> Iterator[Product]:
    product.start()
    try:
        product.wait_ready()
        yield product
    finally:
        if product.process is not None and product.process.poll() is None:
            product.stop()
        for process in product.processes():
            process.kill()
