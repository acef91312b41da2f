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
        return Outcome(
            request_id=request.id,
            at=request.at,
            gateway=self.sink.id,
            method=request.method,
            path=request.path[:200],
            status=status,
            ending=ending,
            code=code,
            client=self.client,
            client_request_id=client_request_id(request.headers.get(b"x-request-id")),
            team=self.team,
            key=self.key,
            model=self.model,
            revision=self.revision,
            generation=self.generation,
            first_version=self.first_version,
            first_probability=self.first_probability,
            chosen=self.chosen,
            version=self.version,
            replica=self.replica,
            attempts=tuple(self.attempts),
            streamed=self.streamed,
            received_ms=_ms(since, request.complete_at),
            authorized_ms=_ms(since, self.authorized_at),
            admitted_ms=_ms(since, self.admitted_at),
            first_byte_ms=_ms(since, self.first_byte_at),
            first_content_ms=_ms(since, self.first_content_at),
            last_byte_ms=_ms(since, self.last_byte_at),
            duration_ms=round((time.monotonic() - since) * 1000, 3),
            prompt_tokens=tokens.prompt,
            completion_tokens=tokens.completion,
            cached_tokens=tokens.cached,
            estimated=tokens.estimated,
            finish_reason=self.finish_reason,
            bytes_in=request.size,
            bytes_out=bytes_out,
        )


def _ms(since: float, moment: float | None) -> float | None:
    """Milliseconds with three digits."""
    return None if moment is None else round((moment - since) * 1000, 3)
