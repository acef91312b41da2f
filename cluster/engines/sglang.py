from __future__ import annotations

from pathlib import PurePath

from cluster.engines.answers import UP, strangeness, unexpected
from cluster.engines.arguments import (
    CommandLine,
    flag,
    model_of,
    number,
    program_of,
    text,
    whole,
)
from cluster.engines.engine import Engine, LaunchOrder, Params
from cluster.health import Probe, Reading

COMMAND_LINE = CommandLine(
    title="SGLang",
    takes={
        "attention-backend": text,
        "base-gpu-id": whole,
        "chat-template": text,
        "chunked-prefill-size": whole,
        "context-length": whole,
        "disable-radix-cache": flag,
        "download-dir": text,
        "dp-size": whole,
        "dtype": text,
        "is-embedding": flag,
        "kv-cache-dtype": text,
        "load-format": text,
        "log-level": text,
        "log-level-http": text,
        "max-prefill-tokens": whole,
        "max-queued-requests": whole,
        "max-running-requests": whole,
        "max-total-tokens": whole,
        "mem-fraction-static": number,
        "page-size": whole,
        "pp-size": whole,
        "quantization": text,
        "random-seed": whole,
        "reasoning-parser": text,
        "revision": text,
        "schedule-policy": text,
        "skip-server-warmup": flag,
        "tokenizer-path": text,
        "tool-call-parser": text,
        "tp-size": whole,
        "trust-remote-code": flag,
        "watchdog-timeout": number,
    },
    ours=(
        *("host", "port", "served-model-name", "model", "model-path"),
        *("api-key", "admin-api-key", "enable-metrics", "grpc-mode"),
        *("ssl-keyfile", "ssl-certfile"),
    ),
)


class Sglang(Engine):
    """SGLang's health check generates one token, which takes a second by design.

    Any model name is accepted, so its list of names proves nothing.
    """

    name = "sglang"
    title = "SGLang"
    version_paths = ("/server_info", "/get_server_info")
    program = "sglang"
    takes_folder = True

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

    def launch(self, order: LaunchOrder) -> list[str]:
        """Releases without the program ``sglang`` are started by their Python, which
        the parameter ``program`` names."""
        program = program_of(order.params, self.program)
        by_python = PurePath(program).name.startswith("python")
        return [
            *([program, "-m", "sglang.launch_server"] if by_python else []),
            *([] if by_python else [program, "serve"]),
            f"--model-path={model_of(order)}",
            *(f"--host={order.host}", f"--port={order.port}"),
            *(f"--served-model-name={order.served_name}", "--enable-metrics"),
            *COMMAND_LINE.words(order.params),
        ]

    def stop_grace_s(self, params: Params) -> float:
        """It looks for open requests every 5 s, and gives its schedulers 15 s."""
        return 30.0


ENGINE = Sglang()
