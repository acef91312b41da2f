"""Who does something: every service takes an actor, every audit row names one."""

from __future__ import annotations

from typing import NamedTuple


class Actor(NamedTuple):
    """``kind`` is user, token, task or command; ``address`` is the caller's, if any."""

    kind: str
    name: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


SYSTEM = Actor("task", "sluice")
