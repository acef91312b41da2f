from __future__ import annotations

from cluster.engines.answers import UP, strangeness, unexpected
from cluster.engines.engine import Engine
from cluster.health import Probe, Reading


class Sglang(Engine):
    """SGLang's health check generates one token, which takes a second by design.

    Any model name is accepted, so its list of names proves nothing.
    """

    name = "sglang"
    title = "SGLang"

    def classify(self, status: int, body: bytes) -> Reading:
        if reading := strangeness(status, body):
            return reading
        if status == 200:
            return UP
        if status == 503:
            return Reading(
                Probe.LOADING,
                "not_ready",
                "Answered 503: it is starting or draining, or its scheduler is stuck.",
            )
        return unexpected(status, body)


ENGINE = Sglang()
