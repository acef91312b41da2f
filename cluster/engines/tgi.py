from __future__ import annotations

from cluster.engines.answers import UP, down, strangeness, unexpected
from cluster.engines.engine import Engine
from cluster.health import Reading


class Tgi(Engine):
    """TGI listens once its shards are ready; any model name is accepted."""

    name = "tgi"
    title = "TGI"

    def classify(self, status: int, body: bytes) -> Reading:
        if reading := strangeness(status, body):
            return reading
        if status == 200:
            return UP
        if status == 503:
            return down("engine_dead", "Answered 503: a shard does not respond.")
        return unexpected(status, body)


ENGINE = Tgi()
