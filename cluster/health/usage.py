"""What the process of a replica takes of its machine, as its node last saw.

A Redis string for each replica, ``memory_name(id)``: resident bytes of the process
and its children. It expires soon, so that an old figure is no figure, whatever the
clocks of the machines say.
"""

from __future__ import annotations

MEMORY_KEPT_S = 20


def memory_name(replica_id: str) -> str:
    return f"sluice:memory:{replica_id}"
