"""Runs llama.cpp's own HTTP server from the wheel ``xllamacpp`` until it is ended.

A program of its own, started by its path: it imports nothing of ours. SIGTERM keeps
its default action and ends the process at once: llama.cpp's own handling closes the
listener but leaves open streams frozen, which clients cannot tell from slowness.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Param(NamedTuple):
    """Where a launch parameter lies in ``CommonParams``, and how it is read."""

    path: str
    read: Callable[[str], Any]


def _switch(text: str) -> bool:
    if text not in ("True", "False", "true", "false"):
        raise ValueError
    return text in ("True", "true")


# Named as llama.cpp's command line names them.
PARAMS = {
    "ctx-size": Param("n_ctx", int),
    "parallel": Param("n_parallel", int),
    "threads": Param("cpuparams.n_threads", int),
    "threads-batch": Param("cpuparams_batch.n_threads", int),
    "threads-http": Param("n_threads_http", int),
    "batch-size": Param("n_batch", int),
    "ubatch-size": Param("n_ubatch", int),
    "n-gpu-layers": Param("n_gpu_layers", int),
    "n-predict": Param("n_predict", int),
    "keep": Param("n_keep", int),
    "cache-reuse": Param("n_cache_reuse", int),
    "cache-ram": Param("cache_ram_mib", int),
    "chat-template": Param("chat_template", str),
    "embeddings": Param("embedding", _switch),
    "warmup": Param("warmup", _switch),
    "verbosity": Param("verbosity", int),
    "temp": Param("sampling.temp", float),
    "top-k": Param("sampling.top_k", int),
    "top-p": Param("sampling.top_p", float),
    "min-p": Param("sampling.min_p", float),
    "repeat-penalty": Param("sampling.penalty_repeat", float),
    "seed": Param("sampling.seed", int),
}


def value_read(name: str, text: str) -> Any:
    """The typed value of a launch parameter; ``ValueError`` says what is wrong."""
    if name not in PARAMS:
        raise ValueError(
            f"llama.cpp takes no parameter {name} here; it takes "
            f"{', '.join(sorted(PARAMS))}."
        )
    try:
        return PARAMS[name].read(text)
    except ValueError:
        raise ValueError(f"The parameter {name} cannot be {text!r}.") from None


def _apply(target: Any, name: str, text: str) -> None:
    *parents, last = PARAMS[name].path.split(".")
    for parent in parents:
        target = getattr(target, parent)
    setattr(target, last, value_read(name, text))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args()


def _params(arguments: argparse.Namespace) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.model_alias = {arguments.alias}
    params.hostnames = [arguments.host]
    params.port = arguments.port
    params.endpoint_metrics = True
    # Nobody but the gateway talks to it: no web page on that port.
    params.ui = False
    chosen = dict(pair.split("=", 1) for pair in arguments.set)
    # One thread, unless the version says more: replicas share the machine.
    chosen.setdefault("threads", "1")
    chosen.setdefault("threads-batch", chosen["threads"])
    for name, text in chosen.items():
        _apply(params, name, text)
    return params


def main() -> None:
    arguments = _arguments()
    if not Path(arguments.model).is_file():
        sys.exit(f"There is no file {arguments.model}.")
    params = _params(arguments)
    import xllamacpp

    server = xllamacpp.Server(params)
    sys.stdout.write(f"ready on {server.listening_address}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
