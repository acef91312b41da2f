"""``python -m cluster.engines.mock``: see ``--help``."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import uvloop

from cluster.engines.mock.connection import Connection
from cluster.engines.mock.engine import Engine
from cluster.engines.mock.switches import Switches, switches_merge

_BACKLOG = 4096


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cluster.engines.mock",
        description="A mock engine. Switches without a value mean true.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--port", type=int, default=0, help="0: any free one; printed as JSON"
    )
    parser.add_argument("--model", default="mock", help="what /v1/models lists")
    parser.add_argument(
        "--with-stdin", action="store_true", help="end when standard input closes"
    )
    for name in Switches.__struct_fields__:
        parser.add_argument(
            "--" + name.replace("_", "-"),
            nargs="?",
            const=True,
            default=argparse.SUPPRESS,
            type=_value,
            metavar="VALUE",
        )
    return parser


def _value(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


async def _serve(host: str, port: int, engine: Engine, with_stdin: bool) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if with_stdin:
        # Nothing is ever sent: readable means closed.
        loop.add_reader(sys.stdin.fileno(), ended.set)
    server = await loop.create_server(
        lambda: Connection(engine), host, port, backlog=_BACKLOG
    )
    bound = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"port": bound}) + "\n")
    sys.stdout.flush()
    await ended.wait()
    server.close()


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = vars(parser.parse_args(argv))
    host, port = given.pop("host"), given.pop("port")
    model, with_stdin = given.pop("model"), given.pop("with_stdin")
    try:
        switches = switches_merge(Switches(), given)
    except msgspec.ValidationError as error:
        parser.error(str(error))
    try:
        uvloop.run(_serve(host, port, Engine(model, switches), with_stdin))
    except OSError as error:
        parser.error(f"cannot listen on {host}:{port}: {error.strerror or error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
