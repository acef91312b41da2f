"""Secrets that lie as files in the data directory, for its owner's eyes only."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from django.utils.translation import gettext as _

from cluster.errors import Refused


class SecretKind(NamedTuple):
    """What a file holds: how a fresh secret is made, and what one looks like."""

    filename: str
    generate: Callable[[], str]
    pattern: re.Pattern[str]


_DRAFT_PREFIX = ".secret-"


@contextmanager
def secret_files_lock(data_dir: Path) -> Iterator[None]:
    """One writer at a time; drafts that a dead one left behind are swept away."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (data_dir / "accounts.lock").open("w")
    except OSError as error:
        raise _unusable(data_dir, error.strerror or str(error)) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for draft in data_dir.glob(f"{_DRAFT_PREFIX}*"):
            draft.unlink()
        yield


def secret_file_ensure(data_dir: Path, kind: SecretKind) -> str:
    """The secret in the file, which is made if it is not there.

    The file appears whole or not at all, and never takes another's place. So a
    start that died after this finds its own secret again and goes on with it.
    """
    path = data_dir / kind.filename
    try:
        draft = _draft_write(data_dir, kind.generate())
        try:
            # Unlike a rename, a link fails when the name is taken.
            os.link(draft, path)
        except FileExistsError:
            return _secret_read(path, kind)
        finally:
            draft.unlink()
        _directory_sync(data_dir)
        return _secret_read(path, kind)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error


def secret_file_stage(data_dir: Path, secret: str) -> Path:
    """A draft that holds the secret; ``secret_file_replace`` makes it the file."""
    try:
        return _draft_write(data_dir, secret)
    except OSError as error:
        raise _unusable(data_dir, error.strerror or str(error)) from error


def secret_file_replace(draft: Path, filename: str) -> None:
    draft.replace(draft.with_name(filename))
    _directory_sync(draft.parent)


def _draft_write(data_dir: Path, secret: str) -> Path:
    # mkstemp creates exclusively, with mode 0600.
    descriptor, name = tempfile.mkstemp(prefix=_DRAFT_PREFIX, dir=data_dir)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


def _secret_read(path: Path, kind: SecretKind) -> str:
    """The secret in an existing file; refused if others could have read or made it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise _unusable(path, _("it is not a file of this user"))
        if status.st_mode & 0o077:
            raise _unusable(path, _("others may read it"))
        secret = file.read(1000).strip()
    if not kind.pattern.fullmatch(secret):
        raise _unusable(path, _("it holds something else"))
    return secret


def _directory_sync(folder: Path) -> None:
    """Make the new name survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, why: str) -> Refused:
    return Refused(
        _("%(path)s cannot hold the secret: %(why)s.") % {"path": path, "why": why},
        code="secret_file",
    )
