"""One request from its arrival to its outcome."""

from __future__ import annotations

import time
from typing import Protocol

from routing.contracts.outcome import Attempt, Ending, Outcome
from routing.gateway import errors
from routing.gateway.errors import Problem
from routing.gateway.header_lines import JSON, header_lines
from routing.gateway.http_server import HttpServer
from routing.gateway.ids import client_request_id
from routing.gateway.request import Request
from routing.gateway.usage import Tokens

_UNCOUNTED = Tokens()


class Sink(Protocol):
    """Where outcomes go. ``id`` is the gateway's."""

    id: str

    def emit(self, outcome: Outcome) -> None: ...


class Forwarding(Protocol):
    """The part of an exchange that has gone on to a replica."""

    def client_left(self) -> None: ...
    def client_blocked(self) -> None: ...
    def client_ready(self) -> None: ...
    def shut(self, problem: Problem) -> None: ...


class Exchange:
    """What is known of a request so far; becomes exactly one outcome.

    Moments (``…_at``) are monotonic seconds, None until they come.

    ``forwarding`` is set while a replica works for it. Everything that ends the
    request calls ``close``; only the first call counts.
    """

    __slots__ = (
        "admitted_at",
        "attempts",
        "authorized_at",
        "chosen",
        "client",
        "closed",
        "connection",
        "finish_reason",
        "first_byte_at",
        "first_content_at",
        "first_probability",
        "first_version",
        "forwarding",
        "generation",
        "key",
        "last_byte_at",
        "model",
        "replica",
        "request",
        "revision",
        "sink",
        "streamed",
        "team",
        "tokens",
        "version",
    )

    def __init__(
        self, sink: Sink, request: Request, connection: HttpServer, client: str
    ) -> None:
        self.sink = sink
        self.request = request
        self.connection = connection
        self.client = client
        self.closed = False
        self.forwarding: Forwarding | None = None
        self.team = self.key = self.model = ""
        self.revision = self.generation = 0
        self.first_version = self.version = self.replica = ""
        self.first_probability = 0.0
        self.chosen = self.streamed = False
        self.attempts: list[Attempt] = []
        self.authorized_at: float | None = None
        self.admitted_at: float | None = None
        self.first_byte_at: float | None = None
        self.first_content_at: float | None = None
        self.last_byte_at: float | None = None
        self.tokens = _UNCOUNTED
        self.finish_reason = ""
        connection.exchange = self

    def tries(self, version: str, replica: str, now: float) -> None:
        """An attempt begins; what came of the one before is past."""
        self.version, self.replica = version, replica
        if self.admitted_at is None:
            self.admitted_at = now
        self.first_byte_at = None

    def refuse(self, problem: Problem, ending: Ending = Ending.REFUSED) -> None:
        """Answer with an error; only before anything else was answered."""
        body = problem.body()
        if not self.close(problem.status, ending, problem.code, len(body)):
            return
        if problem.close:
            self.connection.closing = True
        self.connection.reply(
            problem.status, JSON + header_lines(problem.headers), body
        )

    def answer(self, lines: bytes, body: bytes) -> None:
        """A good answer of the gateway's own."""
        if self.close(200, Ending.COMPLETED, "", len(body)):
            self.connection.reply(200, lines, body)

    def close(self, status: int, ending: Ending, code: str, bytes_out: int) -> bool:
        """Emit the outcome; false when that was done before."""
        if self.closed:
            return False
        self.closed = True
        self.forwarding = None
        self.sink.emit(self._outcome(status, ending, code, bytes_out))
        return True

    def shut(self) -> None:
        """The process ends: break this request off, with a word to the client."""
        if self.forwarding is not None:
            self.forwarding.shut(errors.draining())
        else:
            self.refuse(errors.draining())

    # The client's side ---------------------------------------------------------

    def client_left(self) -> None:
        if self.forwarding is not None:
            self.forwarding.client_left()
        self.close(499, Ending.CLIENT_LEFT, "client_disconnected", 0)

    def client_blocked(self) -> None:
        if self.forwarding is not None:
            self.forwarding.client_blocked()

    def client_ready(self) -> None:
        if self.forwarding is not None:
            self.forwarding.client_ready()

    def _outcome(
        self, status: int, ending: Ending, code: str, bytes_out: int
    ) -> Outcome:
        request, tokens = self.request, self.tokens
        since = request.arrived
        # By position, in the order of its fields: naming so many costs more than all
        # the rest of an outcome.
        return Outcome(
            request.id,
            request.at,
            self.sink.id,
            request.method,
            request.path[:200],
            status,
            ending,
            code,
            self.client,
            client_request_id(request.headers.get(b"x-request-id")),
            self.team,
            self.key,
            self.model,
            self.revision,
            self.generation,
            self.first_version,
            self.first_probability,
            self.chosen,
            self.version,
            self.replica,
            tuple(self.attempts),
            self.streamed,
            _ms(since, request.complete_at),
            _ms(since, self.authorized_at),
            0.0,
            _ms(since, self.admitted_at),
            _ms(since, self.first_byte_at),
            _ms(since, self.first_content_at),
            _ms(since, self.last_byte_at),
            ms_between(since, time.monotonic()),
            tokens.prompt,
            tokens.completion,
            tokens.cached,
            tokens.estimated,
            self.finish_reason,
            request.size,
            bytes_out,
        )


def ms_between(since: float, moment: float) -> float:
    """Milliseconds with three digits; ``round`` would take three times as long."""
    return int((moment - since) * 1e6 + 0.5) / 1000


def _ms(since: float, moment: float | None) -> float | None:
    return None if moment is None else int((moment - since) * 1e6 + 0.5) / 1000
