from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from cluster.engines import llamacpp_server
from cluster.engines.answers import UP, down, json_field, strangeness, unexpected
from cluster.engines.engine import DRIVER_PARAMS, Engine, LaunchOrder, LaunchRefused
from cluster.health import Probe, Reading


class Llamacpp(Engine):
    """llama.cpp's HTTP server answers 503 on every path until the model is loaded.

    Any model name is accepted. Its health says nothing of a stuck decoding loop.
    """

    name = "llamacpp"
    title = "llama.cpp"
    version_paths = ("/props",)
    version_field = "build_info"

    def classify(self, status: int, body: bytes) -> Reading:
        if reading := strangeness(status, body):
            return reading
        if status == 200 and json_field(body, "status") == "ok":
            return UP
        if status == 200:
            return down("wrong_answer", 'llama.cpp answers {"status":"ok"}; not this.')
        if status == 503 and json_field(body, "error", "message") == "Loading model":
            return Reading(Probe.LOADING, "loading", "Loading the model.")
        return unexpected(status, body)

    def launch(self, order: LaunchOrder) -> list[str]:
        """llama.cpp's own server from the wheel ``xllamacpp``, in a Python process.

        Isolated (``-I``), so that it sees neither our code nor our folders.
        """
        if order.artifact is None:
            raise LaunchRefused("no_artifact", "The version names no artifact.")
        if find_spec("xllamacpp") is None:
            raise LaunchRefused(
                "engine_missing",
                "The Python package xllamacpp is not installed on this node.",
            )
        script = Path(llamacpp_server.__file__)
        command = [sys.executable, "-I", str(script), f"--model={order.artifact}"]
        command += [f"--alias={order.served_name}", f"--host={order.host}"]
        command += [f"--port={order.port}", *_arguments(order)]
        return command


def _arguments(order: LaunchOrder) -> list[str]:
    """The launch parameters as arguments; a wrong one is refused by name."""
    arguments = []
    for name, value in sorted(order.params.items()):
        if name in DRIVER_PARAMS:
            continue
        try:
            llamacpp_server.value_read(name, str(value))
        except ValueError as error:
            raise LaunchRefused("bad_param", str(error)) from error
        arguments.append(f"--set={name}={value}")
    return arguments


ENGINE = Llamacpp()
