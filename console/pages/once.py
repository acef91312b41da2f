"""A form that acts once: reloading its answer must not issue a second secret."""

from __future__ import annotations

import secrets

from django.http import HttpRequest

_SESSION_KEY = "forms_once"
# Forms that were opened and left; the oldest are forgotten.
_OPEN_MOST = 20


def once_token(request: HttpRequest) -> str:
    """A fresh token for a hidden field named ``once``."""
    token = secrets.token_urlsafe(12)
    opened = [*request.session.get(_SESSION_KEY, []), token]
    request.session[_SESSION_KEY] = opened[-_OPEN_MOST:]
    return token


def once_use(request: HttpRequest) -> bool:
    """Whether the sent token was still unused; it is used up by asking."""
    token = request.POST.get("once", "")
    opened = request.session.get(_SESSION_KEY, [])
    if token not in opened:
        return False
    request.session[_SESSION_KEY] = [other for other in opened if other != token]
    return True
