from __future__ import annotations

from cluster.engines.answers import (
    UP,
    down,
    json_field,
    name_offered,
    strangeness,
    unexpected,
)
from cluster.engines.engine import Engine, Params
from cluster.health import Probe, Reading


class Ollama(Engine):
    """Ollama loads models when they are asked for; up means that it has the model."""

    name = "ollama"
    title = "Ollama"
    models_path = "/v1/models"

    def health_path(self, params: Params) -> str:
        return "/api/version"

    def classify(self, status: int, body: bytes) -> Reading:
        if reading := strangeness(status, body):
            return reading
        if status != 200:
            return unexpected(status, body)
        if isinstance(json_field(body, "version"), str):
            return UP
        return down("wrong_answer", "The answer names no version: not Ollama.")

    def offers(self, served_name: str, status: int, body: bytes) -> Reading:
        """A name without a tag means the tag ``latest``."""
        reading = name_offered(served_name, status, body)
        if reading.reason == "model_not_offered" and ":" not in served_name:
            latest = name_offered(f"{served_name}:latest", status, body)
            return latest if latest.state is Probe.UP else reading
        return reading


ENGINE = Ollama()
