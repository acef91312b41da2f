from __future__ import annotations

from cluster.engines.answers import (
    UP,
    down,
    name_offered,
    strangeness,
    unexpected,
)
from cluster.engines.engine import Engine
from cluster.health import Reading


class Vllm(Engine):
    """vLLM listens only once the model is loaded and refuses names it lacks."""

    name = "vllm"
    title = "vLLM"
    models_path = "/v1/models"

    def classify(self, status: int, body: bytes) -> Reading:
        if reading := strangeness(status, body):
            return reading
        if status == 200:
            return UP
        if status in (500, 503):
            return down("engine_dead", f"Answered {status}: its engine core died.")
        return unexpected(status, body)

    def offers(self, served_name: str, status: int, body: bytes) -> Reading:
        return name_offered(served_name, status, body)


ENGINE = Vllm()
