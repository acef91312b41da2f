"""A name for every request to the console: in its answer, on the page that says it
failed, and in the log line that says why."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextvars import ContextVar

from django.http import HttpRequest
from django.http.response import HttpResponseBase

_current: ContextVar[str] = ContextVar("request_id", default="")


def request_id() -> str:
    """That of the request being answered; empty outside of one."""
    return _current.get()


def request_id_give(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware. The id is always our own: what a client sends could be anything."""

    def give(request: HttpRequest) -> HttpResponseBase:
        token = _current.set(uuid.uuid4().hex)
        try:
            response = get_response(request)
            response["X-Request-Id"] = _current.get()
            return response
        finally:
            _current.reset(token)

    return give


class RequestIdFilter(logging.Filter):
    """Adds it to what is logged while a request is answered."""

    def filter(self, record: logging.LogRecord) -> bool:
        if found := _current.get():
            data = getattr(record, "data", None)
            record.data = {"request_id": found} | (data or {})
        return True
