"""What stands between the command and the first process: each check names one
thing that would go wrong, in one sentence, before anything is started."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader

from console.children import CannotStart


@contextmanager
def data_dir_held(path: Path) -> Iterator[None]:
    """The data directory, private, writable, and used by this instance alone."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (path / "sluice.lock").open("a+")
    except OSError as error:
        raise CannotStart(
            f"The data directory {path} cannot be written: {error.strerror}."
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise CannotStart(
                f"Another Sluice (pid {lock.read().strip() or 'unknown'}) "
                f"uses the data directory {path}."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def ports_check() -> None:
    for variable, (host, port) in (
        ("SLUICE_CONSOLE_BIND", settings.CONSOLE_BIND),
        ("SLUICE_GATEWAY_BIND", settings.GATEWAY_BIND),
    ):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise CannotStart(
                    f"{host}:{port} cannot be used: {error.strerror}. "
                    f"Set {variable} to another address."
                ) from error


def database_prepare() -> None:
    """Bring the schema up to date; refuse a database that a newer release made."""
    try:
        loader = MigrationLoader(connection)
    except DatabaseError as error:
        raise CannotStart(f"The database cannot be used: {error}".strip()) from error
    ours = {config.label for config in apps.get_app_configs()}
    newer = sorted(
        f"{app}.{name}"
        for app, name in loader.applied_migrations or {}
        if app in ours and (app, name) not in loader.disk_migrations
    )
    if newer:
        raise CannotStart(
            "The database has a newer schema than this release "
            f"({', '.join(newer)}): start the newer release, or restore a backup."
        )
    if loader.graph.leaf_nodes() and any(
        node not in (loader.applied_migrations or {})
        for node in loader.graph.leaf_nodes()
    ):
        call_command("migrate", verbosity=0, interactive=False)


def static_prepare() -> None:
    """Collect static files, unless these very files were collected already."""
    stamp = settings.STATIC_ROOT / ".collected"
    digest = hashlib.sha256()
    for finder in get_finders():
        for name, storage in finder.list(["CVS", ".*", "*~"]):
            digest.update(f"{name} {storage.size(name)} ".encode())
            digest.update(str(storage.get_modified_time(name)).encode())
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    call_command("collectstatic", verbosity=0, interactive=False, clear=True)
    stamp.write_text(digest.hexdigest())
