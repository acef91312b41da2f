from __future__ import annotations

from cluster.engines.answers import UP, down, strangeness, unexpected
from cluster.engines.arguments import (
    MODEL,
    CommandLine,
    flag,
    model_of,
    number,
    program_of,
    text,
    truth,
    whole,
)
from cluster.engines.engine import Engine, LaunchOrder, Params
from cluster.health import Reading


def _yes_or_no(name: str, value: str) -> list[str]:
    return [f"--{name}={'true' if truth(value) else 'false'}"]


COMMAND_LINE = CommandLine(
    title="TGI",
    takes={
        "cuda-graphs": text,
        "cuda-memory-fraction": number,
        "disable-custom-kernels": flag,
        "dtype": text,
        "huggingface-hub-cache": text,
        "json-output": flag,
        "kv-cache-dtype": text,
        "max-batch-prefill-tokens": whole,
        "max-batch-size": whole,
        "max-batch-total-tokens": whole,
        "max-best-of": whole,
        "max-concurrent-requests": whole,
        "max-input-tokens": whole,
        "max-stop-sequences": whole,
        "max-top-n-tokens": whole,
        "max-total-tokens": whole,
        "max-waiting-tokens": whole,
        "num-shard": whole,
        "quantize": text,
        "revision": text,
        "rope-factor": number,
        "rope-scaling": text,
        "sharded": _yes_or_no,
        "speculate": whole,
        "tokenizer-config-path": text,
        "trust-remote-code": flag,
        "validation-workers": whole,
        "waiting-served-ratio": number,
    },
    ours=(
        *("hostname", "port", "model-id", "api-key", "prometheus-port"),
        *("shard-uds-path", "master-addr", "master-port"),
    ),
    ours_short=("p",),
)


class Tgi(Engine):
    """TGI listens once its shards are ready; any model name is accepted."""

    name = "tgi"
    title = "TGI"
    version_paths = ("/info",)
    program = "text-generation-launcher"
    takes_folder = True

    def classify(self, status: int, body: bytes) -> Reading:
        if reading := strangeness(status, body):
            return reading
        if status == 200:
            return UP
        if status == 503:
            return down("engine_dead", "Answered 503: a shard does not respond.")
        return unexpected(status, body)

    def names(self, served_name: str, artifact: str, params: Params) -> set[str]:
        """It calls the model after what it loaded, and cannot be told another name."""
        return {served_name, artifact, str(params.get(MODEL, ""))} - {""}

    def launch(self, order: LaunchOrder) -> list[str]:
        """The sockets that its parts talk over are named after its port: by default
        they are the same for every TGI of a machine."""
        return [
            program_of(order.params, self.program),
            f"--model-id={model_of(order)}",
            *(f"--hostname={order.host}", f"--port={order.port}"),
            f"--shard-uds-path=/tmp/text-generation-server-{order.port}",
            f"--master-port={_master_port(order.port)}",
            *COMMAND_LINE.words(order.params),
        ]

    def environment(self, order: LaunchOrder) -> dict[str, str]:
        """Its second listener for metrics takes any free port: the first has them too.
        Releases that have no second one ignore the variable, not an option."""
        return {"PROMETHEUS_PORT": "0"}

    def stop_grace_s(self, params: Params) -> float:
        """Its launcher ends the router first, then each shard."""
        return 30.0


def _master_port(port: int) -> int:
    """Where its shards meet: another port for every replica of a node."""
    return port - 10_000 if port > 20_000 else port + 10_000


ENGINE = Tgi()
