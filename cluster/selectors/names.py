from __future__ import annotations

import re

from cluster.models.model import NAME_PATTERN

_NAME = re.compile(NAME_PATTERN)


def name_possible(name: str) -> bool:
    """Whether anything can have this name; PostgreSQL fails on some that cannot,
    such as text with a zero byte, instead of finding nothing."""
    return bool(_NAME.match(name))
