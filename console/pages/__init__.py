"""One module per screen. A view parses, calls one service or selector, renders."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, cast
from urllib.parse import urlsplit

from django import forms
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.cache import add_never_cache_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.http import HttpResponseClientRedirect

from cluster.actor import Actor
from cluster.errors import Missing, Refused
from console.accounts.grants import Denied, Scope, grant_of
from console.accounts.models import User
from console.accounts.refusals import refusal_record
from console.client_address import client_address

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


def actor_of(request: HttpRequest) -> Actor:
    """The person behind a request to a page."""
    user = cast(User, request.user)
    return Actor("user", user.get_username(), client_address(request))


def is_poll(request: HttpRequest) -> bool:
    """Whether htmx asks for the live part of a page only."""
    return bool(getattr(request, "htmx", False))


def generation_seen(request: HttpRequest) -> int:
    """The generation that the author of a form saw; ``override`` is the one that they
    chose to replace after a conflict had been shown. No number is none of a route."""
    raw = request.POST.get("override") or request.POST.get("generation", "")
    return int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 10 else -1


_SAFE = ("GET", "HEAD", "OPTIONS")


def page(
    view: View[P], needs: Scope | None = None, *, reads: Scope = Scope.READ
) -> Callable[Concatenate[HttpRequest, P], HttpResponseBase]:
    """A view for people who logged in; what does not exist becomes a 404 page.

    ``needs`` is the scope of its writes: none where a page only shows, or where the
    view itself asks, because the answer depends on a team. ``reads`` is the scope of
    looking. Whoever lacks it gets a page that says who may. Answers are never cached:
    they show state, and some show a secret. A poll whose session ended sends the whole
    page to the login, not a login form into a table.
    """

    @functools.wraps(view)
    def guarded(
        request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs
    ) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return _to_login(request)
        if "\0" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
            # No name holds it, and PostgreSQL takes it for an error of ours.
            raise Http404
        try:
            grant = grant_of(request)
            grant.require(reads)
            if needs is not None and request.method not in _SAFE:
                grant.require(needs)
            response = view(request, *args, **kwargs)
        except Missing as missing:
            raise Http404(str(missing.message)) from missing
        except Denied as denied:
            response = _denied(request, denied)
        add_never_cache_headers(response)
        return response

    vars(guarded)["needs"] = needs
    return guarded


def _denied(request: HttpRequest, denied: Denied) -> HttpResponse:
    refusal_record(actor=actor_of(request), path=request.path, scope=denied.scope.value)
    context = {"reason": denied.message}
    return render(request, "denied.html", context, status=403)


def _to_login(request: HttpRequest) -> HttpResponse:
    if is_poll(request):
        shown = request.htmx.current_url_abs_path or "/"  # type: ignore[attr-defined]
        return HttpResponseClientRedirect(redirect_to_login(shown)["Location"])
    return redirect_to_login(_page_of(request))


def _page_of(request: HttpRequest) -> str:
    """The page to return to: a form's own, not the address that takes what it sends."""
    if request.method in _SAFE:
        return request.get_full_path()
    sender = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(sender, {request.get_host()}):
        return "/"
    parts = urlsplit(sender)
    return f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"


def refusal_add(form: forms.Form, refusal: Refused) -> None:
    """Put a service's refusal beside the field it names, else above the form."""
    field = refusal.field if refusal.field in form.fields else None
    form.add_error(field, str(refusal.message))
