from __future__ import annotations

from cluster.engines.answers import (
    UP,
    down,
    json_field,
    name_offered,
    strangeness,
    unexpected,
)
from cluster.engines.arguments import PROGRAM, program_of, truth
from cluster.engines.engine import (
    DRIVER_PARAMS,
    Engine,
    LaunchOrder,
    LaunchRefused,
    Params,
)
from cluster.health import Probe, Reading

# Ollama is told everything by variables, which are named after the parameters.
_WHOLE = frozenset(
    {"context-length", "gpu-overhead", "max-loaded-models", "max-queue", "num-parallel"}
)
_YES_OR_NO = frozenset({"debug", "flash-attention", "sched-spread"})
_TEXT = frozenset({"keep-alive", "kv-cache-type", "load-timeout"})


class Ollama(Engine):
    """Ollama loads models when they are asked for; up means that it has the model.

    An artifact is the folder with its models; without one it looks where it always
    does. It has no drain: what runs when it is told to end is cut.
    """

    name = "ollama"
    title = "Ollama"
    models_path = "/v1/models"
    version_paths = ("/api/version",)
    program = "ollama"
    takes_file = False
    takes_folder = True

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

    def names(self, served_name: str, artifact: str, params: Params) -> set[str]:
        tagged = served_name if ":" in served_name else f"{served_name}:latest"
        return {served_name, tagged}

    def launch(self, order: LaunchOrder) -> list[str]:
        self.environment(order)
        return [program_of(order.params, self.program), "serve"]

    def environment(self, order: LaunchOrder) -> dict[str, str]:
        host = f"[{order.host}]" if ":" in order.host else order.host
        found = {"OLLAMA_HOST": f"{host}:{order.port}"}
        if order.artifact is not None:
            found["OLLAMA_MODELS"] = str(order.artifact)
        for name, value in sorted(order.params.items()):
            if name not in DRIVER_PARAMS and name != PROGRAM:
                variable = f"OLLAMA_{name.upper().replace('-', '_')}"
                found[variable] = _value(name, str(value))
        return found


def _value(name: str, text: str) -> str:
    """The text of a variable; a parameter that is wrong is refused by name."""
    if name not in _WHOLE | _YES_OR_NO | _TEXT:
        known = ", ".join(sorted(_WHOLE | _YES_OR_NO | _TEXT))
        raise LaunchRefused(
            "bad_param", f"Ollama takes no parameter {name} here; it takes {known}."
        )
    try:
        if name in _WHOLE:
            int(text)
        elif name in _YES_OR_NO:
            return "1" if truth(text) else "0"
        elif not text or not text.isprintable():
            raise ValueError
    except ValueError:
        detail = f"The parameter {name} cannot be {text!r}."
        raise LaunchRefused("bad_param", detail) from None
    return text


ENGINE = Ollama()
