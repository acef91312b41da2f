"""Typed reading of environment variables; a wrong value fails loudly at start.

Every secret ``NAME`` may come as ``NAME_FILE`` instead, the path of a file that
holds it, so that secrets need not stand in the environment.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def env_str(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def env_int(name: str, default: int, *, least: int = 0) -> int:
    raw = env_str(name)
    if not raw:
        return default
    if not raw.isascii() or not raw.isdigit() or int(raw) < least:
        raise ImproperlyConfigured(
            f"{name} must be a whole number of at least {least}, not {raw!r}."
        )
    return int(raw)


def env_list(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in env_str(name, default).split(",") if part.strip()]


def env_secret(name: str) -> str:
    """The value of ``name``, or the content of the file ``name``_FILE; else empty."""
    path = env_str(f"{name}_FILE")
    if not path:
        return env_str(name)
    if env_str(name):
        raise ImproperlyConfigured(f"Set {name} or {name}_FILE, not both.")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"{name}_FILE names {path}, which cannot be read: {error.strerror}."
        ) from error


def env_bind(name: str, default: str) -> tuple[str, int]:
    """``host:port`` as a pair; an IPv6 host stands in brackets."""
    raw = env_str(name, default)
    host, separator, port = raw.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ImproperlyConfigured(f"{name} must be host:port, not {raw!r}.")
    return host.strip("[]"), int(port)


def broker_url(redis_url: str) -> str:
    """A Redis URL as Celery spells it: ``unix://`` is ``redis+socket://`` there."""
    return redis_url.replace("unix://", "redis+socket://", 1)
