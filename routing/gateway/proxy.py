"""From a request to the relay that serves it: the list of the architecture."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from routing.balance.candidates import Candidates
from routing.balance.draw import Rng
from routing.balance.router import Route, Router, Version
from routing.contracts.keys import SCOPE_CHOOSE_VERSION, KeyEntry
from routing.gateway import errors
from routing.gateway.affinity import affinity_of
from routing.gateway.auth import Auth, Verdict
from routing.gateway.body import peek
from routing.gateway.draws import Draws
from routing.gateway.endpoints import Endpoint
from routing.gateway.errors import Problem, Refusal
from routing.gateway.exchange import Exchange
from routing.gateway.relay import Host, Relay

log = logging.getLogger(__name__)


class Gateway(Host, Protocol):
    """What serving a request needs of the process."""

    auth: Auth
    draws: Draws

    @property
    def rng(self) -> Rng: ...
    @property
    def router(self) -> Router | None: ...


def authenticate(
    gateway: Gateway, exchange: Exchange, then: Callable[[KeyEntry], None]
) -> None:
    """Go on with the entry of the request's key, at once where it is known."""
    text = _key_text(exchange)
    try:
        entry = gateway.auth.check(text)
    except Refusal as refusal:
        _refused(exchange, refusal.problem)
        return
    if entry is None:
        gateway.auth.look_up(text, partial(_looked_up, exchange, then))
    else:
        exchange.authorized_at = time.monotonic()
        then(entry)


def _looked_up(
    exchange: Exchange, then: Callable[[KeyEntry], None], verdict: Verdict
) -> None:
    if exchange.closed:
        return
    if isinstance(verdict, Problem):
        _refused(exchange, verdict)
        return
    exchange.authorized_at = time.monotonic()
    try:
        then(verdict)
    except Exception:
        log.exception("request %s failed", exchange.request.id)
        exchange.refuse(errors.internal_error())


def _refused(exchange: Exchange, problem: Problem) -> None:
    """A key that is bad is decided too; one that nobody can judge now is not."""
    if problem.status == 401:
        exchange.authorized_at = time.monotonic()
    exchange.refuse(problem)


def forward(
    gateway: Gateway, exchange: Exchange, endpoint: Endpoint, entry: KeyEntry
) -> None:
    """Send one request of a known key on its way to a replica."""
    exchange.team, exchange.key = entry.team, entry.id
    try:
        peeked = peek(exchange.request.body)
        router = gateway.router
        if router is None:
            raise Refusal(errors.no_healthy_replica("This gateway has no routes yet."))
        route = _route(router, peeked.model, entry)
        exchange.model = route.entry.model
        exchange.revision = router.revision
        exchange.generation = route.entry.generation
        exchange.streamed = peeked.stream and endpoint.streams
        _check_kind(route, endpoint)
        only = _chosen_version(exchange, route, entry)
        exchange.chosen = only is not None
        affinity = affinity_of(route.entry.settings, exchange.request, entry.id)
        candidates = Candidates(route, gateway.rng, only, affinity)
        if candidates.first is not None:
            exchange.first_version = candidates.first.name
            exchange.first_probability = candidates.probability
            if not exchange.chosen:
                version = candidates.first.name
                gateway.draws.count(router.epoch, route.entry, version)
    except Refusal as refusal:
        exchange.refuse(refusal.problem)
        return
    Relay(gateway, exchange, endpoint, route, candidates, peeked).start()


def may_call(entry: KeyEntry, model: str) -> bool:
    return entry.models is None or model in entry.models


def _key_text(exchange: Exchange) -> str:
    headers = exchange.request.headers
    scheme, _, text = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer":
        text = headers.get(b"x-api-key", b"")
    return text.strip().decode("latin-1")


def _route(router: Router, model: str, entry: KeyEntry) -> Route:
    route = router.routes.get(model)
    if route is None:
        raise Refusal(errors.model_not_found(model[:200]))
    if not may_call(entry, model):
        raise Refusal(errors.model_not_allowed(model))
    return route


def _check_kind(route: Route, endpoint: Endpoint) -> None:
    kind = route.entry.kind
    if kind not in endpoint.kinds:
        raise Refusal(
            errors.invalid_request(
                f"The model {route.entry.model} is of the kind {kind}; "
                f"it does not answer {endpoint.path}.",
                "model",
            )
        )


def _chosen_version(
    exchange: Exchange, route: Route, entry: KeyEntry
) -> Version | None:
    """The version that the client asks for by header, None for a draw by weight."""
    raw = exchange.request.headers.get(b"x-sluice-version")
    if raw is None:
        return None
    if SCOPE_CHOOSE_VERSION not in entry.scopes:
        raise Refusal(errors.version_not_allowed())
    name = raw.decode("latin-1")
    version = route.versions.get(name)
    if version is None:
        raise Refusal(
            errors.invalid_request(
                f"The model {route.entry.model} has no version {name[:200]}.",
                "x-sluice-version",
            )
        )
    return version
