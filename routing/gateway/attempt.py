"""One try of a request on one replica, from its slot to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from routing.balance.candidates import Candidate
from routing.contracts.outcome import Attempt
from routing.gateway.clock import Clock
from routing.gateway.passive import PassiveHealth
from routing.gateway.upstream import Owner, Pool, UpstreamConnection


class Drained(Protocol):
    """Who waits for the last request of a draining replica."""

    def soon(self) -> None: ...


class Host(Protocol):
    """What attempts need of the process."""

    pool: Pool
    clock: Clock
    passive: PassiveHealth

    @property
    def in_flight(self) -> Drained: ...
    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class Sender(Owner, Protocol):
    """The request on whose behalf it is; it hears the answer itself."""

    def connects(self) -> None:
        """No connection was at hand: a new one is made."""

    def connected(self, candidate: Candidate) -> tuple[bytes, bytes]:
        """The head and the body to send, which count as sent from here on."""

    def not_connected(self, detail: str) -> None: ...


class OpenAttempt:
    """Holds a slot on the replica of ``candidate``; whoever opens it must ``end`` it.

    ``streamed``: it counts among the streams that wait for the replica, as long as it
    is not the client that they wait for. ``began`` is monotonic.
    """

    __slots__ = (
        "_connect_ms",
        "_connecting",
        "_host",
        "_sender",
        "_streamed",
        "_upstream",
        "_waits",
        "began",
        "candidate",
        "state",
    )

    def __init__(
        self,
        host: Host,
        sender: Sender,
        candidate: Candidate,
        began: float,
        *,
        streamed: bool,
        blocked: bool,
    ) -> None:
        self.candidate = candidate
        self.began = began
        state = self.state = candidate.replica.state
        self._host = host
        self._sender = sender
        self._streamed = streamed
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._connect_ms: float | None = None
        self._waits = False
        state.in_flight += 1
        if not blocked:
            self.waits(began)
        if candidate.trial:
            state.trial_since = began

    @property
    def connecting(self) -> bool:
        return self._connecting is not None

    def reach(self, *, afresh: bool = False) -> None:
        """Send the request, over a connection of the pool if one is at hand."""
        connection = None
        if not afresh:
            connection = self._host.pool.take(self.candidate.replica.address)
        if connection is not None:
            self._send(connection)
            return
        self._sender.connects()
        self._connecting = self._host.spawn(self._connect())

    async def _connect(self) -> None:
        began = time.monotonic()
        try:
            connection = await self._host.pool.connect(self.candidate.replica.address)
        except (OSError, ValueError) as error:
            self._connecting = None
            self.state.refused(time.monotonic())
            self._sender.not_connected(_reason(error))
            return
        self._connecting = None
        self._connect_ms = round((time.monotonic() - began) * 1000, 3)
        self._send(connection)

    def _send(self, connection: UpstreamConnection) -> None:
        self._upstream = connection
        head, body = self._sender.connected(self.candidate)
        connection.send(self._sender, head, body)

    # The answer ------------------------------------------------------------------

    def whole(self) -> None:
        """The connection went back to the pool, or is gone."""
        self._upstream = None

    def release(self) -> None:
        """The replica has done its part; what remains is the client's."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.leave()

    # The client --------------------------------------------------------------------

    def waits(self, now: float) -> None:
        """The stream waits for the replica again."""
        if self._streamed and not self._waits:
            self._waits = True
            self.state.stream_waits(now)

    def rests(self) -> None:
        """No longer is it the replica that this stream waits for."""
        if self._waits:
            self._waits = False
            self.state.stream_rests()

    def pause(self) -> None:
        self.rests()
        if self._upstream is not None:
            self._upstream.pause()

    def resume(self, now: float) -> None:
        self.waits(now)
        if self._upstream is not None:
            self._upstream.resume()

    # -------------------------------------------------------------------------------

    def end(self, error: str, arrived: float, *, blames: bool = False) -> Attempt:
        """Give back the slot and let go of the replica; what the outcome tells of it.

        ``blames``: the replica is at fault, and that counts against it.
        """
        candidate, state = self.candidate, self.state
        state.in_flight -= 1
        self.rests()
        if state.draining and not state.in_flight:
            self._host.in_flight.soon()
        if blames:
            self._host.passive.bad(candidate, error)
        if candidate.trial:
            state.trial_since = 0.0
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._upstream is not None:
            self._upstream.abort()
            self._upstream = None
        return Attempt(
            candidate.replica.id,
            candidate.version.name,
            error,
            round((time.monotonic() - self.began) * 1000, 3),
            round((self.began - arrived) * 1000, 3),
            self._connect_ms,
            candidate.choice,
        )


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or type(error).__name__).lower()
