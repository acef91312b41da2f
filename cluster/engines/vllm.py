from __future__ import annotations

from cluster.engines.answers import (
    UP,
    down,
    name_offered,
    strangeness,
    unexpected,
)
from cluster.engines.arguments import (
    CommandLine,
    flag,
    model_of,
    number,
    program_of,
    switch,
    text,
    whole,
)
from cluster.engines.engine import Engine, LaunchOrder, LaunchRefused, Params
from cluster.health import Reading

# Beyond its own shutdown timeout, for its engine processes to end.
_ENDING_S = 10.0
_SHUTDOWN_MOST_S = 600

COMMAND_LINE = CommandLine(
    title="vLLM",
    takes={
        "block-size": whole,
        "chat-template": text,
        "data-parallel-size": whole,
        "download-dir": text,
        "dtype": text,
        "enable-auto-tool-choice": flag,
        "enable-chunked-prefill": switch,
        "enable-lora": flag,
        "enable-prefix-caching": switch,
        "enforce-eager": flag,
        "generation-config": text,
        "gpu-memory-utilization": number,
        "kv-cache-dtype": text,
        "load-format": text,
        "max-loras": whole,
        "max-model-len": whole,
        "max-num-batched-tokens": whole,
        "max-num-queued-reqs": whole,
        "max-num-queued-tokens": whole,
        "max-num-seqs": whole,
        "pipeline-parallel-size": whole,
        "quantization": text,
        "reasoning-parser": text,
        "revision": text,
        "seed": whole,
        "shutdown-timeout": whole,
        "tensor-parallel-size": whole,
        "tokenizer": text,
        "tool-call-parser": text,
        "trust-remote-code": flag,
        "uvicorn-log-level": text,
    },
    ours=(
        *("host", "port", "uds", "served-model-name", "model", "api-key"),
        *("ssl-keyfile", "ssl-certfile", "headless", "grpc"),
    ),
)


class Vllm(Engine):
    """vLLM listens only once the model is loaded and refuses names it lacks."""

    name = "vllm"
    title = "vLLM"
    models_path = "/v1/models"
    program = "vllm"
    takes_folder = True

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

    def launch(self, order: LaunchOrder) -> list[str]:
        """``shutdown-timeout`` is passed on only where a version asks for it: a replica
        is drained before it is stopped, and older releases do not know the option."""
        _shutdown_s(order.params)
        return [
            *(program_of(order.params, self.program), "serve", model_of(order)),
            *(f"--host={order.host}", f"--port={order.port}"),
            f"--served-model-name={order.served_name}",
            *COMMAND_LINE.words(order.params),
        ]

    def stop_grace_s(self, params: Params) -> float:
        try:
            return _shutdown_s(params) + _ENDING_S
        except LaunchRefused:
            return _ENDING_S


def _shutdown_s(params: Params) -> int:
    """How long it may finish requests after it was told to end."""
    value = str(params.get("shutdown-timeout", 0))
    if not value.isdecimal() or int(value) > _SHUTDOWN_MOST_S:
        raise LaunchRefused(
            "bad_param",
            f"The parameter shutdown-timeout takes 0 to {_SHUTDOWN_MOST_S} seconds, "
            f"not {value!r}.",
        )
    return int(value)


ENGINE = Vllm()
