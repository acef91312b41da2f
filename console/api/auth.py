"""Who calls: a session with CSRF, or an access token. Both become an actor."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from ninja.errors import AuthenticationError, HttpError
from ninja.security import APIKeyCookie, HttpBearer

from cluster.actor import Actor
from console.accounts.grants import Grant, Scope, grant_of
from console.accounts.models import User
from console.accounts.tokens import token_find, token_used
from console.client_address import client_address


class ApiRequest(HttpRequest):
    """A request that was let in; ``auth`` is set by one of the classes below."""

    auth: Actor
    grant: Grant
    person: User


class BearerToken(HttpBearer):
    """The token of ``admin-token``, or another that was issued; with the scope that
    the operation needs."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope = scope

    def __call__(self, request: HttpRequest) -> Actor | None:
        if "Authorization" not in request.headers:
            return None
        actor: Actor | None = super().__call__(request)
        if actor is None:
            # A wrong token never falls back to a session.
            raise AuthenticationError
        return actor

    def authenticate(self, request: HttpRequest, token: str) -> Actor | None:
        found = token_find(token)
        if found is None:
            return None
        actor = Actor("token", found.name, client_address(request))
        vars(request).update(grant=found.grant, caller=actor, person=found.user)
        token_used(token=found, address=actor.address)
        scope_require(found.grant, self.scope)
        return actor


class Session(APIKeyCookie):
    """A logged-in browser; its writes carry the CSRF token (``X-CSRFToken``)."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope = scope

    def __call__(self, request: HttpRequest) -> Actor | None:
        return self.authenticate(request, None)

    def authenticate(self, request: HttpRequest, key: str | None) -> Actor | None:
        if not request.user.is_authenticated:
            return None
        if reason := _csrf_reason(request):
            raise HttpError(403, reason)
        name = request.user.get_username()
        actor = Actor("user", name, client_address(request))
        vars(request).update(caller=actor, person=request.user)
        scope_require(grant_of(request), self.scope)
        return actor


class _CsrfCheck(CsrfViewMiddleware):
    """Django's check, answering with its reason in place of a page."""

    def _reject(self, request: HttpRequest, reason: str) -> str:
        return reason


def _csrf_reason(request: HttpRequest) -> str | None:
    check = _CsrfCheck(lambda _request: HttpResponse())
    check.process_request(request)
    # The middleware saw a view that leaves the check to us.
    vars(request).pop("csrf_processing_done", None)
    result: object = check.process_view(request, _no_view, (), {})
    return None if result is None else str(result)


def _no_view(request: HttpRequest) -> HttpResponse:
    raise NotImplementedError


def scope_require(grant: Grant, scope: Scope) -> None:
    """Whoever leads a team passes for keys; the operation asks about which team."""
    if not (scope is Scope.KEYS and grant.leads):
        grant.require(scope)


def needs(scope: Scope) -> Any:
    """``auth=`` of an operation: who may call it. Every write names its scope."""
    return [BearerToken(scope), Session(scope)]


AUTH = needs(Scope.READ)
