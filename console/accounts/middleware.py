"""Notes when a browser that is logged in was last here."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from console.accounts.sessions import MARK, SEEN_EVERY, sign_in_seen
from console.client_address import client_address

# When this process last wrote of a session; forgotten as a whole when it is long.
_written: dict[str, float] = {}
_WRITTEN_MOST = 10_000


def sessions_seen(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    def note(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        key = request.session.session_key
        # A request that did not open its session does not open it for this.
        if key and request.session.accessed and request.session.get(MARK):
            _note(key, client_address(request))
        return response

    return note


def _note(key: str, address: str) -> None:
    now_s = time.monotonic()
    if now_s - _written.get(key, float("-inf")) < SEEN_EVERY.total_seconds():
        return
    if len(_written) >= _WRITTEN_MOST:
        _written.clear()
    _written[key] = now_s
    sign_in_seen(session_key=key, address=address)
