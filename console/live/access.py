"""Who may open a websocket: people who are logged in, from our own pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host

from console.accounts.grants import Scope
from console.accounts.models import User


def origin_allowed(scope: Mapping[str, Any]) -> bool:
    """Whether the page that asks came from this console.

    Browsers send the cookies of a user along with another site's websocket, so the
    origin is what tells them apart; a client that names none is not a browser.
    """
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    host = headers.get(b"host", b"").decode("latin-1")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    known = validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS)
    return known and bool(host) and urlsplit(origin).netloc == host


@database_sync_to_async  # type: ignore[untyped-decorator]
def session_valid(cookies: Mapping[str, str]) -> bool:
    """Whether the session in these cookies belongs to a person who may read, asked
    anew: a session that was revoked ends its live pages with the next beat."""
    request = HttpRequest()
    request.session = SessionStore(cookies.get(settings.SESSION_COOKIE_NAME))
    user = get_user(request)
    return isinstance(user, User) and user.grant.allows(Scope.READ)
