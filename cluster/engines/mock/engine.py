"""From a request to the script of its answer."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from cluster.engines.mock import payloads
from cluster.engines.mock.ask import Ask, Generation, ask_decode, generation
from cluster.engines.mock.counters import Counters
from cluster.engines.mock.steps import Script, Step, Stop, head, page, refusal
from cluster.engines.mock.stream import stream_script
from cluster.engines.mock.switches import Switches, switches_decode, switches_merge
from cluster.engines.mock.whole import answer_script, status_script, value_script

Remembered = tuple[Step | Stop, ...]
_Key = TypeVar("_Key")

GENERATING = frozenset(
    {
        payloads.CHAT,
        payloads.COMPLETIONS,
        payloads.EMBEDDINGS,
        payloads.RERANK,
        payloads.RESPONSES,
    }
)
_LOADING = payloads.error(503, "Loading model", "unavailable_error")
# Bounds what is remembered: scripts of at most so many tokens, asked for by bodies
# of at most so many bytes, and at most so many of each.
_SCRIPT_TOKENS = 512
_ASK_BYTES = 4096
_REMEMBERED = 256
# Where one engine or another tells its release.
_VERSION_PAGES = frozenset({"/version", "/api/version", "/info", "/server_info"})
# Names whose values a recorded request keeps to itself.
_SECRETS = frozenset(
    {b"authorization", b"x-api-key", b"cookie", b"proxy-authorization"}
)


class Request(NamedTuple):
    """Header names are lower case; ``path`` has no query."""

    method: bytes
    path: str
    headers: Mapping[bytes, bytes]
    body: bytes
    keep_alive: bool

    @property
    def generates(self) -> bool:
        return self.path in GENERATING and self.method == b"POST"


class Engine:
    """One mock engine: its switches, its counters, and the answers it gives."""

    def __init__(self, model: str, switches: Switches) -> None:
        self.model = model
        self.at_start = switches
        self.counters = Counters()
        self.recorded: deque[dict[str, Any]] = deque(maxlen=100)
        # Two levels, both under the current switches: equal bodies ask for equal
        # answers, and most different bodies do so too.
        self._asked: dict[tuple[str, bytes], Remembered] = {}
        self._scripts: dict[Generation, Remembered] = {}
        self.set(switches)

    def set(self, switches: Switches) -> None:
        self.switches = switches
        self._random = random.Random(switches.seed)
        self._asked.clear()
        self._scripts.clear()

    def answer(self, request: Request) -> Script:
        path = request.path
        if path == "/mock" or path.startswith("/mock/"):
            return self._control(request)
        self.counters.path(path)
        if self.switches.record:
            self._record(request)
        if not request.generates:
            return self._page(request)
        # A hit is a plain request without switches of its own: the fast path.
        script = self._asked.get((path, request.body))
        if script is not None and b"x-mock" not in request.headers:
            return script
        try:
            return self._generate(request)
        except (msgspec.DecodeError, ValueError) as error:
            return refusal(400, str(error))

    def _generate(self, request: Request) -> Script:
        ask = ask_decode(request.body)
        switches = self.switches
        own = _own_switches(request, ask)
        if own:
            switches = switches_merge(switches, own)
        if switches.fail_rate and self._random.random() < switches.fail_rate:
            return status_script(msgspec.structs.replace(switches, status=500))
        if switches.status is not None:
            return status_script(switches)
        ask.model = ask.model or self.model
        if request.path == payloads.EMBEDDINGS:
            return value_script(payloads.embeddings(ask, ask.model), switches)
        if request.path == payloads.RERANK:
            return value_script(payloads.rerank(ask, ask.model), switches)
        wanted = generation(
            ask, request.path, tokens=switches.tokens, tokens_win="tokens" in own
        )
        if own or switches.huge_body_bytes or wanted.tokens > _SCRIPT_TOKENS:
            return _script(wanted, switches)
        return self._remembered(wanted, request)

    def _remembered(self, wanted: Generation, request: Request) -> Script:
        script = self._scripts.get(wanted)
        if script is None:
            script = tuple(_script(wanted, self.switches))
            _remember(self._scripts, wanted, script)
        if len(request.body) <= _ASK_BYTES and not self.switches.fail_rate:
            _remember(self._asked, (request.path, request.body), script)
        return script

    def _page(self, request: Request) -> Script:
        path = request.path
        if request.method == b"POST" and path == "/tokenize":
            try:
                return _json(payloads.tokenized(ask_decode(request.body)))
            except (msgspec.DecodeError, ValueError) as error:
                return refusal(400, str(error))
        if request.method == b"GET":
            if path == "/health":
                return self._health()
            if path == "/metrics":
                text = self.counters.exposition()
                return page(text, content_type="text/plain; version=0.0.4")
            if path == "/v1/models":
                return _json(payloads.models(self.model))
            if path in _VERSION_PAGES:
                return _json({"version": "mock"})
            if path == "/props":
                return _json({"build_info": "mock"})
        if request.method == b"HEAD":
            # A body here would be taken for the next answer.
            return (Step(head(405, {"allow": "GET, POST"}, length=0)),)
        return refusal(404, "The mock engine has no such page.")

    def _health(self) -> Script:
        health = self.switches.health
        if health == "hang":
            return (Stop.SILENCE,)
        if health == "loading":
            return page(payloads.encode(_LOADING), status=503)
        if health == "error":
            return refusal(500, "The mock engine was told to be ill.")
        return _json({"status": "ok"})

    def _control(self, request: Request) -> Script:
        method, path = request.method, request.path
        if path == "/mock" and method in (b"GET", b"PUT", b"DELETE"):
            if method == b"DELETE":
                self.set(self.at_start)
            elif method == b"PUT":
                try:
                    self.set(switches_decode(self.switches, request.body))
                except (msgspec.DecodeError, ValueError) as error:
                    return refusal(400, str(error))
            return _json(msgspec.structs.asdict(self.switches))
        if path == "/mock/counters" and method in (b"GET", b"DELETE"):
            if method == b"DELETE":
                self.counters.reset()
            return _json(msgspec.structs.asdict(self.counters))
        if path == "/mock/requests" and method in (b"GET", b"DELETE"):
            if method == b"DELETE":
                self.recorded.clear()
            return _json(list(self.recorded))
        return refusal(404, "The mock engine has no such control.")

    def _record(self, request: Request) -> None:
        headers = {
            name.decode("latin-1"): "(secret)"
            if name in _SECRETS
            else value.decode("latin-1")
            for name, value in request.headers.items()
        }
        self.recorded.append(
            {
                "method": request.method.decode(),
                "path": request.path,
                "headers": headers,
                "body": request.body.decode("utf-8", "replace"),
            }
        )


def _remember(memory: dict[_Key, Remembered], key: _Key, script: Remembered) -> None:
    if len(memory) >= _REMEMBERED:
        memory.clear()
    memory[key] = script


def _own_switches(request: Request, ask: Ask) -> dict[str, Any]:
    """The switches that concern this request alone; the body wins over the header."""
    raw = request.headers.get(b"x-mock")
    if raw is None:
        return ask.x_mock or {}
    own = msgspec.json.decode(raw, type=dict[str, Any])
    return {**own, **(ask.x_mock or {})}


def _script(wanted: Generation, switches: Switches) -> Script:
    if switches.finish_reason is not None:
        wanted = wanted._replace(finish_reason=switches.finish_reason)
    if wanted.streamed:
        return stream_script(wanted, switches)
    return answer_script(wanted, switches)


def _json(value: Any) -> Script:
    return page(payloads.encode(value))
