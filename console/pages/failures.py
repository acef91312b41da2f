"""The pages that say why there is no page: what happened, what to do, and under which
id the log has it."""

from __future__ import annotations

import sys

import redis
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from console.frame import copy_words
from console.request_id import request_id

# What answers again by itself.
_AWAY = (OperationalError, InterfaceError, redis.ConnectionError, redis.TimeoutError)
_AGAIN_S = 10


def server_failed(request: HttpRequest) -> HttpResponse:
    """503 while the database or Redis is away, else 500. Asks neither of them."""
    error = sys.exc_info()[1]
    if not isinstance(error, _AWAY):
        return HttpResponse(render_to_string("500.html", _context()), status=500)
    what = "Redis" if isinstance(error, redis.RedisError) else _("The database")
    text = render_to_string("503.html", _context() | {"what": what})
    response = HttpResponse(text, status=503)
    response["Retry-After"] = str(_AGAIN_S)
    return response


def form_refused(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The form's token is missing or old. What was typed lies behind Back."""
    return render(request, "403_csrf.html", status=403)


def _context() -> dict[str, object]:
    """Without a request: its session may be what cannot be read."""
    return {"request_id": request_id(), "copy_words": copy_words(), "theme": "system"}
