"""Asking a replica for its health and its load, whatever may answer there."""

from __future__ import annotations

import asyncio

from cluster.engines import Engine, Metrics, Params
from cluster.engines.answers import BODY_LIMIT, down, snippet
from cluster.engines.scrape import MOST_BYTES, Scrape, ScrapeFailed
from cluster.health import Probe, Reading
from cluster.services.http_get import Link, NoAnswer

READ_TIMEOUT_S = 10.0
# For everything together: an answer may also trickle in for ever.
TOTAL_TIMEOUT_S = 12.0
SCRAPE_TIMEOUT_S = 5.0


class Unscraped(Exception):
    """There are no metrics; ``reason`` is a code, ``detail`` the evidence."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


async def health_ask(
    link: Link, *, engine: Engine, params: Params, served_name: str
) -> Reading:
    """What the replica behind the link says of itself; never raises, never hangs."""
    try:
        async with asyncio.timeout(TOTAL_TIMEOUT_S):
            health = await _get(link, engine.health_path(params))
            reading = engine.classify(*health)
            if reading.state is Probe.UP and engine.models_path:
                names = await _get(link, engine.models_path)
                reading = engine.offers(served_name, *names)
            return reading
    except NoAnswer as error:
        return down(error.reason, error.detail)
    except TimeoutError:
        return down("timeout", f"No whole answer within {TOTAL_TIMEOUT_S:g} s.")


async def _get(link: Link, path: str) -> tuple[int, bytes]:
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await link.get(path, most_bytes=BODY_LIMIT)
    except TimeoutError:
        detail = f"No answer within {READ_TIMEOUT_S:g} s."
        raise NoAnswer("timeout", detail) from None


async def metrics_ask(link: Link, metrics: Metrics) -> Scrape:
    """What the metrics of the replica say; raises ``Unscraped``, never hangs."""
    try:
        async with asyncio.timeout(SCRAPE_TIMEOUT_S):
            answer = await link.get(metrics.path, most_bytes=MOST_BYTES)
    except NoAnswer as error:
        raise Unscraped(error.reason, error.detail) from error
    except TimeoutError as error:
        detail = f"The metrics took longer than {SCRAPE_TIMEOUT_S:g} s."
        raise Unscraped("timeout", detail) from error
    if answer.status != 200:
        text = f"{metrics.path} answered {answer.status}: {snippet(answer.body)}"
        raise Unscraped("http_status", text)
    try:
        return metrics.parse(answer.body)
    except ScrapeFailed as error:
        raise Unscraped("bad_metrics", f"In the metrics, {error}.") from error
