"""Asking a replica for its health over HTTP, whatever may answer there."""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import Iterator

import httpx

from cluster.engines import Engine, Params
from cluster.engines.answers import BODY_LIMIT, down
from cluster.health import Probe, Reading

CONNECT_TIMEOUT_S = 2.0
READ_TIMEOUT_S = 10.0
# For everything together: an answer may also trickle in for ever.
TOTAL_TIMEOUT_S = 12.0
_HEADERS = {"accept-encoding": "identity", "connection": "close"}


@functools.cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes longer than a hundred probes; once is enough."""
    return ssl.create_default_context()


def asking_client() -> httpx.AsyncClient:
    """A client for one round of questions; takes nothing from the environment."""
    return httpx.AsyncClient(
        http2=False,
        follow_redirects=False,
        trust_env=False,
        verify=_tls(),
        headers=_HEADERS,
        # The caller bounds how many it asks at once.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        timeout=httpx.Timeout(
            READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, write=CONNECT_TIMEOUT_S
        ),
    )


async def health_ask(
    client: httpx.AsyncClient,
    address: str,
    *,
    engine: Engine,
    params: Params,
    served_name: str,
) -> Reading:
    """What the replica at this address says of itself; never raises, never hangs."""
    try:
        async with asyncio.timeout(TOTAL_TIMEOUT_S):
            url = address + engine.health_path(params)
            reading = engine.classify(*await _get(client, url))
            if reading.state is Probe.UP and engine.models_path:
                answer = await _get(client, address + engine.models_path)
                reading = engine.offers(served_name, *answer)
            return reading
    except TimeoutError:
        return _late(f"No whole answer within {TOTAL_TIMEOUT_S:g} s.")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return failure_read(error)


async def _get(client: httpx.AsyncClient, url: str) -> tuple[int, bytes]:
    """Status and body; of a longer body one byte more than ``BODY_LIMIT``."""
    body = bytearray()
    async with client.stream("GET", url) as response:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > BODY_LIMIT:
                break
    return response.status_code, bytes(body[: BODY_LIMIT + 1])


def failure_read(error: Exception) -> Reading:
    """What the lack of an answer means, as exactly as the network tells."""
    if isinstance(error, httpx.ConnectTimeout):
        return _late(f"No connection within {CONNECT_TIMEOUT_S:g} s.")
    if isinstance(error, httpx.TimeoutException):
        return _late(f"No answer within {READ_TIMEOUT_S:g} s.")
    if isinstance(error, httpx.ConnectError):
        return _no_connection(error)
    if isinstance(error, httpx.RemoteProtocolError):
        if "disconnected" in str(error) or "closed" in str(error):
            return down("connection_lost", "Closed the connection while answering.")
        return down("bad_http", "Answers, but not in HTTP.")
    if isinstance(error, httpx.NetworkError):
        return down("connection_lost", "The connection broke while answering.")
    return down("unreachable", f"Cannot be asked: {type(error).__name__}.")


def _late(detail: str) -> Reading:
    return down("timeout", detail)


def _no_connection(error: Exception) -> Reading:
    causes = list(_causes(error))
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return down("refused", "Connection refused: nothing listens there.")
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return down("unknown_host", "The host name is not known.")
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return down("tls", f"TLS failed: {cause.verify_message}.")
        if isinstance(cause, ssl.SSLError):
            return down("tls", "TLS failed: it does not speak TLS there.")
    for cause in causes:
        if isinstance(cause, OSError) and cause.strerror:
            return down("unreachable", f"No connection: {cause.strerror}.")
    return down("unreachable", "No connection.")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what lies under it, members of groups included."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from _causes(member)
        error = error.__cause__ or error.__context__
