"""What a page may watch.

``replicas`` and ``nodes`` are the lists, ``replica.<id>`` and ``node.<name>`` one of
each. Watching a thing that does not exist is allowed and silent.
"""

from __future__ import annotations

import re

import msgspec

TOPICS_MOST = 8
_TOPIC = re.compile(
    r"(replicas|nodes|(replica|node)\.[A-Za-z0-9][A-Za-z0-9._-]{0,219})"
)


class Subscribe(msgspec.Struct):
    """The only message that a page sends: all that it watches from now on."""

    subscribe: list[str]


def topics_parse(text: str | None) -> frozenset[str] | None:
    """The topics of a subscribe message; None for anything else."""
    try:
        wanted = msgspec.json.decode(text or "", type=Subscribe).subscribe
    except msgspec.DecodeError:
        return None
    fits = len(wanted) <= TOPICS_MOST and all(map(_TOPIC.fullmatch, wanted))
    return frozenset(wanted) if fits else None
