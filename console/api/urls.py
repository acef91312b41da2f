"""Everything below ``/api/``: the API, its description, and an answer for the rest."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, path, re_path
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt

from console.api import docs, problems
from console.api.application import api

View = Callable[..., HttpResponse]


def door(view: View) -> View:
    """What holds for every answer: no caching, and problems as problems.

    Authentication and CSRF are the operations' own affair (``console.api.auth``).
    """

    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response = _length_refused(request) or view(request, *args, **kwargs)
        except Exception as error:
            response = problems.unexpected(request, error)
        if response.status_code == 405:
            allowed = {"Allow": response.get("Allow", "")}
            detail = _("This path does not know the method.")
            response = problems.problem(
                405, "method_not_allowed", detail, headers=allowed
            )
        response["Cache-Control"] = "no-store"
        return response

    return login_not_required(csrf_exempt(guarded))


def _length_refused(request: HttpRequest) -> HttpResponse | None:
    """Only a stated length is held against the limit before the body is read."""
    if "Transfer-Encoding" not in request.headers:
        return None
    detail = _("State the length of the body: Content-Length.")
    return problems.problem(411, "length_required", detail)


def _guarded(patterns: list[URLPattern | URLResolver]) -> list[URLPattern]:
    return [
        path(str(pattern.pattern), door(pattern.callback), name=pattern.name)
        for pattern in patterns
        if isinstance(pattern, URLPattern) and pattern.name != "api-root"
    ]


_patterns, _app_name, _namespace = api.urls
urlpatterns = [
    path("v1/openapi.json", door(docs.schema), name="api-schema"),
    path("v1/docs", docs.page, name="api-docs"),
    path("v1/", (_guarded(_patterns), _app_name, _namespace)),
    re_path(r"", door(problems.not_found)),
]
