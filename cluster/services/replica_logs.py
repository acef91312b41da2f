"""The last lines of a replica's log, wherever its node is.

The log lies in the data directory of the node. Another machine asks the node's queue
for it; the node puts the lines into Redis for half a minute.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
from django.conf import settings

from cluster.drivers.files import NodeFiles
from cluster.drivers.replica_log import log_lines
from cluster.live import redis_client
from cluster.models import Driver, Replica

LINES_MOST = 200
_KEPT_S = 30


def _name(replica_id: str) -> str:
    return f"sluice:log:{replica_id}"


def replica_log_here(*, replica: Replica) -> list[str] | None:
    """The lines when the log lies on this machine, else None."""
    if replica.node is None:
        return None
    files = NodeFiles(Path(settings.DATA_DIR), replica.node.name)
    return log_lines(files.log(replica.id), most=LINES_MOST)


def replica_log_publish(*, replica: Replica) -> None:
    """On the node: put the lines where those who asked look for them."""
    lines = replica_log_here(replica=replica) or []
    redis_client().set(_name(replica.id), msgspec.json.encode(lines), ex=_KEPT_S)


def replica_log(*, replica: Replica) -> list[str] | None:
    """The last lines; None while the node, which is asked for them, has not answered.

    A replica that no node runs has none. May raise ``RedisError``.
    """
    if replica.driver != Driver.PROCESS or replica.node is None:
        return []
    if (lines := replica_log_here(replica=replica)) is not None:
        return lines
    # Tasks import services; only this nudge goes the other way.
    from cluster.tasks import replica_log_nudge

    raw = cast("bytes | None", redis_client().get(_name(replica.id)))
    replica_log_nudge(replica)
    return None if raw is None else msgspec.json.decode(raw, type=list[str])
