"""What is at which path: the gateway's own pages, and the way to the models."""

from __future__ import annotations

import logging
from functools import partial
from urllib.parse import unquote

from routing.contracts.keys import KeyEntry
from routing.gateway import errors, pages
from routing.gateway.config import client_address
from routing.gateway.endpoints import ENDPOINTS
from routing.gateway.errors import Problem
from routing.gateway.exchange import Exchange
from routing.gateway.gateway import Gateway
from routing.gateway.header_lines import JSON, TEXT
from routing.gateway.http_server import HttpServer
from routing.gateway.proxy import authenticate, forward
from routing.gateway.request import Request

log = logging.getLogger(__name__)

MODELS = "/v1/models"


class Front:
    """Takes the requests of all connections. Its own pages leave no outcome."""

    def __init__(self, gateway: Gateway) -> None:
        self.config = gateway.config
        self.clock = gateway.clock
        self._gateway = gateway
        self._pages = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
        }

    def handle(self, request: Request, connection: HttpServer) -> None:
        """Answer one request; nothing that goes wrong here may end the process."""
        path = request.path
        own = self._pages.get(path)
        if own is not None and request.method in ("GET", "HEAD"):
            own(connection)
            return
        exchange = self._exchange(request, connection)
        try:
            self._serve(exchange, path)
        except Exception:
            log.exception("request %s failed", request.id)
            exchange.refuse(errors.internal_error())

    def malformed(
        self, problem: Problem, request: Request, connection: HttpServer
    ) -> None:
        self._exchange(request, connection).refuse(problem)

    def abandoned(self, request: Request, connection: HttpServer) -> None:
        if request.path not in self._pages:
            self._exchange(request, connection).client_left()

    def _serve(self, exchange: Exchange, path: str) -> None:
        gateway, method = self._gateway, exchange.request.method
        if gateway.draining:
            exchange.refuse(errors.draining())
        elif endpoint := ENDPOINTS.get(path):
            if method == "POST":
                then = partial(forward, gateway, exchange, endpoint)
                authenticate(gateway, exchange, then)
            else:
                exchange.refuse(errors.method_not_allowed(path, "POST"))
        elif path == MODELS or path.startswith(f"{MODELS}/"):
            if method in ("GET", "HEAD"):
                authenticate(gateway, exchange, partial(self._models, exchange, path))
            else:
                exchange.refuse(errors.method_not_allowed(path[:200], "GET"))
        elif path in self._pages:
            exchange.refuse(errors.method_not_allowed(path, "GET"))
        else:
            exchange.refuse(errors.not_found(path[:200]))

    def _exchange(self, request: Request, connection: HttpServer) -> Exchange:
        client = connection.peer
        if self.config.trusted_proxies:
            forwarded = request.headers.get(b"x-forwarded-for", b"").decode("latin-1")
            client = client_address(client, forwarded, self.config.trusted_proxies)
        return Exchange(self._gateway, request, connection, client)

    def _models(self, exchange: Exchange, path: str, entry: KeyEntry) -> None:
        router = self._gateway.router
        if path == MODELS:
            pages.models_list(exchange, router, entry)
        else:
            model = unquote(path[len(MODELS) + 1 :])
            pages.model_show(exchange, router, model, entry)

    def _livez(self, connection: HttpServer) -> None:
        connection.reply(200, JSON, pages.livez())

    def _readyz(self, connection: HttpServer) -> None:
        status, body = pages.readyz(self._gateway)
        connection.reply(status, JSON, body)

    def _metrics(self, connection: HttpServer) -> None:
        scrape = _Scrape(connection)
        connection.exchange = scrape
        self._gateway.spawn(self._answer_metrics(scrape))

    async def _answer_metrics(self, scrape: _Scrape) -> None:
        text = await self._gateway.figures.text()
        if not scrape.left:
            scrape.connection.reply(200, TEXT, text)


class _Scrape:
    """A client that waits for the figures; it may leave meanwhile."""

    def __init__(self, connection: HttpServer) -> None:
        self.connection = connection
        self.left = False

    def client_left(self) -> None:
        self.left = True

    def client_blocked(self) -> None:
        """The answer is one piece: nothing can be held back."""

    def client_ready(self) -> None:
        """See ``client_blocked``."""

    def shut(self) -> None:
        """It is answered within a second anyway."""
