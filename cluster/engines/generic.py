from __future__ import annotations

import re
import shlex
import sys
from typing import NoReturn

from cluster.engines.answers import UP, down, strangeness, unexpected
from cluster.engines.engine import Engine, LaunchOrder, LaunchRefused, Params
from cluster.engines.scrape import METRICS, Metrics, ScrapeFailed
from cluster.health import Probe, Reading

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_PATH = re.compile(r"/[A-Za-z0-9._~/?=&%-]*\Z")


class Generic(Engine):
    """Any other server that speaks OpenAI's protocol.

    Parameters: ``health-path`` (default ``/health``); ``metrics``, the name of the
    engine whose series it shows, and ``metrics-path``; for a process ``command``,
    a list of arguments written as text, in which ``{host}``, ``{port}``, ``{model}``
    (the served name), ``{artifact}`` (its file) and ``{python}`` are filled in.
    """

    name = "generic"
    title = "this server"
    takes_folder = True

    def health_path(self, params: Params) -> str:
        return _path(params, "health-path", "/health")

    def metrics(self, params: Params) -> Metrics | None:
        name = params.get("metrics")
        if name is None:
            return None
        known = METRICS.get(str(name), Metrics("/metrics", _unknown_series))
        return known._replace(path=_path(params, "metrics-path", known.path))

    def classify(self, status: int, body: bytes) -> Reading:
        if reading := strangeness(status, body):
            return reading
        if 200 <= status < 300:
            return UP
        if status == 503 and b"loading" in body.lower():
            return Reading(Probe.LOADING, "loading", "Answered 503: loading.")
        if status == 404:
            return down(
                "http_status",
                "Answered 404: set the version's parameter health-path to a path "
                "that answers 200 when the server is ready.",
            )
        return unexpected(status, body)

    def launch(self, order: LaunchOrder) -> list[str]:
        text = order.params.get("command")
        if not isinstance(text, str) or not text.strip():
            raise LaunchRefused(
                "no_command", "The version has no parameter command to start it with."
            )
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise LaunchRefused(
                "bad_command", f"The command cannot be split into words: {error}."
            ) from error
        return [_filled(word, order) for word in words]


def _path(params: Params, name: str, default: str) -> str:
    path = params.get(name, default)
    return path if isinstance(path, str) and _PATH.match(path) else default


def _unknown_series(text: bytes) -> NoReturn:
    raise ScrapeFailed(
        "nothing is looked for: the version's parameter metrics must be one of "
        f"{', '.join(METRICS)}"
    )


def _filled(word: str, order: LaunchOrder) -> str:
    """The word with its placeholders filled in; other braces stay as they are."""
    values = {
        "host": order.host,
        "port": str(order.port),
        "model": order.served_name,
        "python": sys.executable,
    }
    if order.artifact is not None:
        values["artifact"] = str(order.artifact)

    def value(match: re.Match[str]) -> str:
        if (name := match[1]) in values:
            return values[name]
        if name == "artifact":
            raise LaunchRefused("no_artifact", "The version names no artifact.")
        raise LaunchRefused(
            "bad_command", f"The command has the unknown placeholder {match[0]}."
        )

    return _PLACEHOLDER.sub(value, word)


ENGINE = Generic()
