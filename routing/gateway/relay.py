"""One request on its way through replicas: attempts, timers, slot and ending.

Everything happens in callbacks: the connection to the replica calls
``upstream_data`` and ``upstream_lost``, the clock ``on_clock``, the client's side
``client_left``. Whatever ends the request goes through ``_finish``, which frees the
slot and lets the exchange emit its outcome; it is safe to call twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from routing.balance.candidates import Candidate, Candidates
from routing.balance.router import Route
from routing.balance.state import ReplicaState
from routing.contracts.outcome import Attempt, Ending
from routing.gateway import errors, failure
from routing.gateway.body import Peek, rewrite
from routing.gateway.clock import NEVER, TICK_S, Clock
from routing.gateway.endpoints import Endpoint
from routing.gateway.errors import Problem
from routing.gateway.exchange import Exchange
from routing.gateway.failure import Failure
from routing.gateway.header_lines import (
    EVENT_STREAM,
    request_head,
    served_by,
    trace_lines,
)
from routing.gateway.passing import (
    ErrorPassing,
    Passing,
    StreamPassing,
    WholePassing,
)
from routing.gateway.passive import PassiveHealth
from routing.gateway.upstream import Answer, Pool, UpstreamConnection

log = logging.getLogger(__name__)

WAITING = b": waiting\n\n"


class Drained(Protocol):
    """Who waits for the last request of a draining replica."""

    def soon(self) -> None: ...


class Host(Protocol):
    """What a relay needs of the process."""

    pool: Pool
    clock: Clock
    hold_s: float
    passive: PassiveHealth

    @property
    def in_flight(self) -> Drained: ...
    def relay_opened(self, relay: Relay) -> None: ...
    def relay_closed(self, relay: Relay) -> None: ...
    def retried(self, reason: str) -> None: ...
    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...


class Relay:
    """Owns the slot on a replica and the way of the answer to the client."""

    def __init__(
        self,
        host: Host,
        exchange: Exchange,
        endpoint: Endpoint,
        route: Route,
        candidates: Candidates,
        peeked: Peek,
    ) -> None:
        self.exchange = exchange
        self.clock = host.clock
        self.wake_at = NEVER
        self._host = host
        self._endpoint = endpoint
        self.model = route.entry.model
        self._timeouts = route.entry.settings.timeouts
        self._retries_left = route.entry.settings.retries
        self._candidates = candidates
        self._peeked = peeked
        self._candidate: Candidate | None = None
        # Of the attempt under way, for what happens with every chunk.
        self._state: ReplicaState | None = None
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._passing: Passing | None = None
        self._failures: list[Failure] = []
        self._attempt_started = 0.0
        self._connect_ms: float | None = None
        self._waited_s = 0.0
        self._blocked = False
        # Whether it counts among the streams that wait for the replica.
        self._waits = False
        self._finished = False
        self._phase_at = NEVER
        self._total_at = exchange.request.arrived + self._timeouts.total_s
        self._hold_at = NEVER
        if exchange.streamed:
            self._hold_at = exchange.request.arrived + host.hold_s

    @property
    def strips_usage(self) -> bool:
        """Whether the count of tokens was asked for by the gateway alone."""
        return not self._peeked.wants_usage

    @property
    def replica_id(self) -> str:
        """The replica that works for this request now, if one does."""
        return self._candidate.replica.id if self._candidate is not None else ""

    @property
    def tokens(self) -> int:
        """How many events were passed on; about one a token."""
        return self._passing.events if self._passing is not None else 0

    def start(self) -> None:
        self.exchange.forwarding = self
        self._host.relay_opened(self)
        self.clock.watch(self)
        if not self._try_next():
            self._give_up(
                errors.no_healthy_replica(
                    f"No replica of the model {self.model} can serve now."
                ),
                Ending.REFUSED,
            )

    # Attempts ------------------------------------------------------------------

    def _try_next(self) -> bool:
        """Begin an attempt on the next candidate; false when none is left."""
        self._attempt_started = time.monotonic()
        self._connect_ms = None
        candidate = self._candidates.next(self._attempt_started)
        if candidate is None:
            return False
        self._candidate = candidate
        exchange = self.exchange
        state = self._state = candidate.replica.state
        state.in_flight += 1
        if exchange.streamed and not self._blocked:
            self._waits = True
            state.stream_waits(self._attempt_started)
        if candidate.trial:
            state.trial_since = self._attempt_started
        exchange.version, exchange.replica = (
            candidate.version.name,
            candidate.replica.id,
        )
        self._reach(candidate, self._host.pool.take(candidate.replica.address))
        return True

    def _reach(
        self, candidate: Candidate, connection: UpstreamConnection | None
    ) -> None:
        if connection is not None:
            self._send(candidate, connection)
            return
        self._set_phase(self._timeouts.connect_s)
        self._connecting = self._host.spawn(self._connect(candidate))

    async def _connect(self, candidate: Candidate) -> None:
        began = time.monotonic()
        try:
            connection = await self._host.pool.connect(candidate.replica.address)
        except (OSError, ValueError) as error:
            self._connecting = None
            candidate.replica.state.refused(time.monotonic())
            self._fail(failure.connect(_reason(error)))
            return
        self._connecting = None
        self._connect_ms = round((time.monotonic() - began) * 1000, 3)
        self._send(candidate, connection)

    def _send(self, candidate: Candidate, connection: UpstreamConnection) -> None:
        request = self.exchange.request
        body = rewrite(
            request.body,
            self._peeked,
            candidate.version.served_name,
            self.exchange.streamed,
        )
        head = b"%bcontent-length: %d\r\nx-request-id: %b\r\n%b\r\n" % (
            request_head(self._endpoint.path, candidate.replica.address),
            len(body),
            request.id.encode(),
            trace_lines(request.headers),
        )
        self._upstream = connection
        self._set_phase(self._timeouts.first_content_s)
        connection.send(self, head, body)

    def _end_attempt(self, error: str, *, blames: bool = False) -> None:
        """Give back the slot and let go of the replica; nothing if none is held.

        ``blames``: the replica is at fault, and that counts against it.
        """
        candidate, self._candidate = self._candidate, None
        if candidate is None:
            return
        state = candidate.replica.state
        state.in_flight -= 1
        self._rest()
        if state.draining and not state.in_flight:
            self._host.in_flight.soon()
        if blames:
            self._host.passive.bad(candidate, error)
        if candidate.trial:
            state.trial_since = 0.0
        duration_s = time.monotonic() - self._attempt_started
        self.exchange.attempts.append(
            Attempt(
                candidate.replica.id,
                candidate.version.name,
                error,
                round(duration_s * 1000, 3),
                connect_ms=self._connect_ms,
            )
        )
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._upstream is not None:
            self._upstream.abort()
            self._upstream = None

    def _fail(self, failed: Failure) -> None:
        """The attempt failed before any content reached the client."""
        self._waited_s += time.monotonic() - self._attempt_started
        self._end_attempt(failed.reason, blames=failed.blames)
        self._passing = None
        self._failures.append(failed)
        if failed.retryable and self._retries_left > 0 and self._try_next():
            self._retries_left -= 1
            self._host.retried(failed.reason)
            return
        timed_out = failed.problem.code == "upstream_timeout"
        ending = Ending.TIMED_OUT if timed_out else Ending.UPSTREAM_FAILED
        self._give_up(failure.final(self._failures), ending)

    def _give_up(self, problem: Problem, ending: Ending) -> None:
        connection = self.exchange.connection
        if not connection.started:
            self._finish()
            self.exchange.refuse(problem, ending)
            return
        # The status line went out with the first comment: an event must do.
        self._break_off(problem, ending)

    def _break_off(
        self, problem: Problem, ending: Ending, *, blames: bool = False
    ) -> None:
        connection = self.exchange.connection
        if self.exchange.streamed:
            connection.write(problem.event())
        self._end_attempt(problem.code, blames=blames)
        self._finish()
        if self.exchange.close(200, ending, problem.code, connection.bytes_out):
            connection.cut()

    # The replica's side --------------------------------------------------------

    def upstream_data(self, answer: Answer, data: bytes, complete: bool) -> None:
        if complete:
            self._upstream = None
        try:
            if self._passing is None:
                self._passing = self._judge(answer)
            self._passing.data(data, complete)
        except Exception:
            log.exception("request %s failed", self.exchange.request.id)
            self._end_attempt("internal_error")
            self._give_up(errors.internal_error(), Ending.BROKEN)

    def upstream_lost(self, detail: str, untouched: bool) -> None:
        self._upstream = None
        candidate = self._candidate
        if candidate is None:
            return
        if untouched:
            # The replica closed an idle connection just as the request went out.
            self._reach(candidate, None)
        elif self._passing is None:
            self._fail(failure.reset(detail))
        else:
            self._passing.lost(detail)

    def _judge(self, answer: Answer) -> Passing:
        """How this answer is passed on, by its head."""
        exchange = self.exchange
        exchange.first_byte_at = time.monotonic()
        assert self._candidate is not None
        self._candidate.replica.state.answered()
        if answer.status >= 300:
            return ErrorPassing(self, answer)
        if exchange.streamed and answer.content_type.startswith(b"text/event-stream"):
            return StreamPassing(self, answer)
        return WholePassing(self, answer)

    # For the passing of an answer ------------------------------------------------

    def content_reached(self) -> None:
        """From here on nothing is retried, and the idle timer runs."""
        now = self.exchange.first_content_at = time.monotonic()
        self._waited_s += now - self._attempt_started
        self._hold_at = NEVER
        self.moved()
        self._plan()

    def moved(self) -> None:
        """The replica sent something that counts. The clock looks at the old moment
        first and finds that it has moved: planning anew would cost each chunk."""
        self._phase_at = self.clock.now + self._timeouts.idle_s + TICK_S
        if self._state is not None:
            self._state.last_byte_at = self.clock.now

    def served_lines(self) -> bytes:
        """The headers that say who served, and what it cost."""
        exchange = self.exchange
        overhead_s = time.monotonic() - exchange.request.complete_at - self._waited_s
        return b"%bx-sluice-attempts: %d\r\nx-sluice-overhead-ms: %.2f\r\n" % (
            served_by(self.model, exchange.version, exchange.replica),
            len(exchange.attempts) + 1,
            max(0.0, overhead_s * 1000),
        )

    def fail(self, failed: Failure) -> None:
        self._fail(failed)

    def broke(self, problem: Problem, *, blames: bool = True) -> None:
        """The answer breaks after the client has seen some of it."""
        self._break_off(problem, Ending.BROKEN, blames=blames)

    def release(self) -> None:
        """The replica has done its part; what remains is the client's."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.leave()

    def complete(self, status: int, ending: Ending, code: str, bytes_out: int) -> bool:
        """The answer is whole; true if this call ended the request."""
        self.release()
        candidate = self._candidate
        self._end_attempt("")
        if candidate is not None and ending is Ending.COMPLETED:
            self._host.passive.good(candidate)
        self._finish()
        return self.exchange.close(status, ending, code, bytes_out)

    # The client's side -----------------------------------------------------------

    def client_left(self) -> None:
        self._end_attempt("client_disconnected")
        self._finish()
        connection = self.exchange.connection
        self.exchange.close(
            499, Ending.CLIENT_LEFT, "client_disconnected", connection.bytes_out
        )

    def client_blocked(self) -> None:
        self._blocked = True
        self._rest()
        if self._upstream is not None:
            self._upstream.pause()

    def client_ready(self) -> None:
        self._blocked = False
        state = self._state if self._candidate is not None else None
        if state is not None and self.exchange.streamed and not self._waits:
            self._waits = True
            state.stream_waits(self.clock.now)
        self._phase_at = self.clock.now + self._timeouts.idle_s + TICK_S
        self._plan()
        if self._upstream is not None:
            self._upstream.resume()

    def _rest(self) -> None:
        """No longer is it the replica that this stream waits for."""
        if self._waits and self._state is not None:
            self._waits = False
            self._state.stream_rests()

    def shut(self, problem: Problem) -> None:
        self._end_attempt(problem.code)
        begun = self._passing is not None and self.exchange.connection.started
        self._give_up(problem, Ending.BROKEN if begun else Ending.REFUSED)

    # Time ------------------------------------------------------------------------

    def on_clock(self, now: float) -> None:
        if now >= self._total_at:
            # A long answer may be a good one: nobody is to blame for the limit.
            self._out_of_time("the total time is over", blames=False)
        elif now >= self._phase_at and not self._blocked:
            self._phase_over()
        elif now >= self._hold_at:
            self._say_waiting()
            self._hold_at = now + self._host.hold_s
        self._plan()

    def _phase_over(self) -> None:
        if self._connecting is not None:
            assert self._candidate is not None
            self._candidate.replica.state.refused(time.monotonic())
            self._fail(failure.connect("no answer in time"))
        elif self.exchange.first_content_at is None:
            self._out_of_time("no content in time")
        else:
            self._out_of_time("it went silent")

    def _out_of_time(self, what: str, *, blames: bool = True) -> None:
        if self.exchange.first_content_at is None:
            self._fail(failure.timed_out(what, blames=blames))
        else:
            self.broke(errors.upstream_timeout(what), blames=blames)

    def _say_waiting(self) -> None:
        connection = self.exchange.connection
        if connection.started:
            connection.write(WAITING)
        else:
            connection.start(200, self.served_lines() + EVENT_STREAM, WAITING)

    def _set_phase(self, seconds: float) -> None:
        self._phase_at = self.clock.now + seconds + TICK_S
        self._plan()

    def _plan(self) -> None:
        if not self._finished:
            phase_at = NEVER if self._blocked else self._phase_at
            self.wake_at = min(phase_at, self._total_at, self._hold_at)

    def _finish(self) -> None:
        if not self._finished:
            self._finished = True
            # Each knows the other: without the cycle both go at once.
            self._passing = None
            self.clock.forget(self)
            self._host.relay_closed(self)


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or type(error).__name__).lower()
