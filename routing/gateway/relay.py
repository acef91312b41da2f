"""One request on its way through replicas: attempts, the answer, the ending.

Everything happens in callbacks: the connection to the replica calls
``upstream_data`` and ``upstream_lost``, the deadlines ``total_over`` and its like, the
client's side ``client_left``. Whatever ends the request goes through ``_finish``, which
lets the exchange emit its outcome; it is safe to call twice.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from routing.balance.candidates import Candidate, Candidates
from routing.balance.router import Route
from routing.contracts.outcome import Ending
from routing.gateway import attempt, errors, failure
from routing.gateway.attempt import OpenAttempt
from routing.gateway.body import Peek, rewrite
from routing.gateway.deadlines import Deadlines
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
from routing.gateway.sse import SseReader
from routing.gateway.upstream import Answer
from routing.gateway.usage import NO_TOKENS, estimate

log = logging.getLogger(__name__)

WAITING = b": waiting\n\n"


class Host(attempt.Host, Protocol):
    """What a relay needs of the process."""

    hold_s: float

    def relay_opened(self, relay: Relay) -> None: ...
    def relay_closed(self, relay: Relay) -> None: ...
    def retried(self, reason: str) -> None: ...
    def retry_refused(self, model: str) -> None: ...


class Relay:
    """Owns the attempt under way and the way of the answer to the client."""

    def __init__(
        self,
        host: Host,
        exchange: Exchange,
        endpoint: Endpoint,
        route: Route,
        candidates: Candidates,
        peeked: Peek,
    ) -> None:
        settings = route.entry.settings
        self.exchange = exchange
        self.model = route.entry.model
        self._host = host
        self._endpoint = endpoint
        self._retries_left = settings.retries
        self._budget = route.group.retries
        self._max_tokens = settings.max_tokens
        self._candidates = candidates
        self._peeked = peeked
        self._attempt: OpenAttempt | None = None
        self._passing: Passing | None = None
        self._failures: list[Failure] = []
        self._waited_s = 0.0
        self._blocked = False
        # Whether a replica was ever sent the request.
        self._sent = False
        self._finished = False
        self._deadlines = Deadlines(
            host.clock,
            self,
            settings.timeouts,
            exchange.request.arrived,
            host.hold_s if exchange.streamed else None,
        )

    def reader(self) -> SseReader:
        """For the stream of the answer; takes out a count of tokens that the gateway
        alone had asked for."""
        return self._endpoint.reader(strip_usage=not self._peeked.wants_usage)

    @property
    def replica_id(self) -> str:
        """The replica that works for this request now, if one does."""
        return self._attempt.candidate.replica.id if self._attempt is not None else ""

    @property
    def tokens(self) -> int:
        """How many events with content were passed on; about one a token."""
        return self._passing.tokens if self._passing is not None else 0

    def start(self) -> None:
        self.exchange.forwarding = self
        self._host.relay_opened(self)
        self._budget.request(self._host.clock.now)
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
        now = time.monotonic()
        candidate = self._candidates.next(now)
        if candidate is None:
            return False
        self.exchange.tries(candidate.version.name, candidate.replica.id, now)
        begun = self._attempt = OpenAttempt(
            self._host,
            self,
            candidate,
            now,
            streamed=self.exchange.streamed,
            blocked=self._blocked,
        )
        begun.reach()
        return True

    def connects(self) -> None:
        self._deadlines.connects()

    def connected(self, candidate: Candidate) -> tuple[bytes, bytes]:
        """What to send; from now on the replica may be at work."""
        self._sent = True
        self._deadlines.asks()
        request = self.exchange.request
        body = rewrite(
            request.body,
            self._peeked,
            candidate.version.served_name,
            self.exchange.streamed and self._endpoint.asks_usage,
            self._max_tokens,
            self._endpoint.most_tokens,
        )
        head = b"%bcontent-length: %d\r\nx-request-id: %b\r\n%b\r\n" % (
            request_head(self._endpoint.path, candidate.replica.address),
            len(body),
            request.id.encode(),
            trace_lines(request.headers),
        )
        return head, body

    def not_connected(self, detail: str) -> None:
        self._fail(failure.connect(detail))

    def _end_attempt(self, error: str, *, blames: bool = False) -> None:
        """Give back the slot; nothing if none is held."""
        ended, self._attempt = self._attempt, None
        if ended is not None:
            arrived = self.exchange.request.arrived
            self.exchange.attempts.append(ended.end(error, arrived, blames=blames))

    def _fail(self, failed: Failure) -> None:
        """The attempt failed before any content reached the client."""
        if self._attempt is not None:
            self._waited_s += time.monotonic() - self._attempt.began
        self._end_attempt(failed.reason, blames=failed.blames)
        self._passing = None
        self._failures.append(failed)
        if failed.retryable and self._may_retry() and self._try_next():
            self._retries_left -= 1
            self._host.retried(failed.reason)
            return
        timed_out = failed.problem.code == "upstream_timeout"
        ending = Ending.TIMED_OUT if timed_out else Ending.UPSTREAM_FAILED
        self._give_up(failure.final(self._failures), ending)

    def _may_retry(self) -> bool:
        """Within what the route allows each request, and all of them together."""
        if self._retries_left <= 0:
            return False
        if self._budget.take(self._host.clock.now):
            return True
        self._host.retry_refused(self.model)
        return False

    def _give_up(self, problem: Problem, ending: Ending) -> None:
        if not self.exchange.connection.started:
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
        if complete and self._attempt is not None:
            self._attempt.whole()
        try:
            if self._passing is None:
                self._passing = self._judge(answer)
            self._passing.data(data, complete)
        except Exception:
            log.exception("request %s failed", self.exchange.request.id)
            self._end_attempt("internal_error")
            self._give_up(errors.internal_error(), Ending.BROKEN)

    def upstream_lost(self, detail: str, untouched: bool) -> None:
        if self._attempt is None:
            return
        self._attempt.whole()
        if untouched:
            # The replica closed an idle connection just as the request went out.
            self._attempt.reach(afresh=True)
        elif self._passing is None:
            self._fail(failure.reset(detail))
        else:
            self._passing.lost(detail)

    def _judge(self, answer: Answer) -> Passing:
        """How this answer is passed on, by its head."""
        exchange = self.exchange
        exchange.first_byte_at = time.monotonic()
        assert self._attempt is not None
        self._attempt.state.answered()
        if answer.status >= 300:
            return ErrorPassing(self, answer)
        if exchange.streamed and answer.content_type.startswith(b"text/event-stream"):
            return StreamPassing(self, answer)
        return WholePassing(self, answer)

    # For the passing of an answer ------------------------------------------------

    def content_reached(self) -> None:
        """From here on nothing is retried, and the idle timer runs."""
        now = self.exchange.first_content_at = time.monotonic()
        self._deadlines.content()
        if self._attempt is not None:
            self._waited_s += now - self._attempt.began
            self._attempt.state.last_byte_at = now

    def moved(self) -> None:
        """The replica sent something that counts."""
        self._deadlines.moved()
        if self._attempt is not None:
            self._attempt.state.last_byte_at = self._host.clock.now

    def served_lines(self) -> bytes:
        """The headers that say who served, and what it cost."""
        exchange, request = self.exchange, self.exchange.request
        asked_at = request.complete_at or request.arrived
        overhead_s = time.monotonic() - asked_at - self._waited_s
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
        if self.exchange.last_byte_at is None:
            self.exchange.last_byte_at = time.monotonic()
        if self._attempt is not None:
            self._attempt.release()

    def complete(self, status: int, ending: Ending, code: str, bytes_out: int) -> bool:
        """The answer is whole; true if this call ended the request."""
        self.release()
        served = self._attempt
        self._end_attempt("")
        if served is not None and ending is Ending.COMPLETED:
            self._host.passive.good(served.candidate)
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
        self._deadlines.blocks()
        if self._attempt is not None:
            self._attempt.pause()

    def client_ready(self) -> None:
        self._blocked = False
        self._deadlines.resumes()
        if self._attempt is not None:
            self._attempt.resume(self._host.clock.now)

    def shut(self, problem: Problem) -> None:
        self._end_attempt(problem.code)
        begun = self._passing is not None and self.exchange.connection.started
        self._give_up(problem, Ending.BROKEN if begun else Ending.REFUSED)

    # Time ------------------------------------------------------------------------

    def total_over(self) -> None:
        """A long answer may be a good one: nobody is to blame for the limit."""
        self._out_of_time("the total time is over", blames=False)

    def phase_over(self) -> None:
        if self._attempt is not None and self._attempt.connecting:
            self._attempt.state.refused(time.monotonic())
            self._fail(failure.connect("no answer in time"))
        elif self.exchange.first_content_at is None:
            self._out_of_time("no content in time")
        else:
            self._out_of_time("it went silent")

    def held_long(self) -> None:
        connection = self.exchange.connection
        if connection.started:
            connection.write(WAITING)
        else:
            connection.start(200, self.served_lines() + EVENT_STREAM, WAITING)

    def _out_of_time(self, what: str, *, blames: bool = True) -> None:
        if self.exchange.first_content_at is None:
            self._fail(failure.timed_out(what, blames=blames))
        else:
            self.broke(errors.upstream_timeout(what), blames=blames)

    # The end -----------------------------------------------------------------------

    def _finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        self._account()
        # Each knows the other: without the cycle both go at once.
        self._passing = None
        self._deadlines.end()
        self._host.relay_closed(self)

    def _account(self) -> None:
        """The tokens of the request: counted by the engine, or else estimated."""
        exchange, passing = self.exchange, self._passing
        if passing is not None:
            exchange.finish_reason = passing.finish_reason[:40]
            counted = passing.usage.tokens() if passing.usage is not None else None
            if counted is not None:
                exchange.tokens = counted
                return
        if not self._endpoint.metered:
            exchange.tokens = NO_TOKENS
        elif self._sent:
            exchange.tokens = estimate(exchange.request.size, self.tokens)
