"""A form that acts once: sent again, it makes nothing a second time."""

from __future__ import annotations

import secrets

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _

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


def once_repeated(request: HttpRequest) -> bool:
    """Whether this very form made something before; says so to whoever sent it. A form
    that carries no token comes from no page of ours and is taken as it is."""
    if not request.POST.get("once") or once_use(request):
        return False
    messages.info(request, _("That form was sent before: nothing was made twice."))
    return True
