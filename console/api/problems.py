"""Every failure of the API as ``application/problem+json`` (RFC 9457).

======================================  ======  ===================================
``Refused``, a body that does not fit   422     ``errors`` names the fields
``Missing``, unknown path               404
``Conflict``, ``Stale``                 409     ``current`` is what is in force
``PreconditionMissing``                 428
no or wrong credentials                 401
CSRF; ``Denied``: role or scope         403
wrong method; no length; too large      405; 411; 413
no JSON                                 400
database or Redis away                  503
anything else                           500     ``request_id`` is in the log too
======================================  ======  ===================================
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import redis
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from pydantic import BaseModel, Field

from cluster.errors import Conflict, Missing, Refused
from console.accounts.grants import Denied
from console.accounts.refusals import refusal_record
from console.request_id import request_id

log = logging.getLogger(__name__)


class FieldError(BaseModel):
    """One field at fault; nested ones are written with dots: ``weights.v1``."""

    field: str
    code: str
    message: str


class Problem(BaseModel):
    """Nothing was changed. ``code`` is stable, ``detail`` is for a person."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Unprocessable Entity"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["A model of this name exists."])
    code: str = Field(examples=["duplicate"])
    errors: list[FieldError] | None = None
    current: int | str | None = None
    request_id: str | None = None


class Stale(Refused):
    """The object changed since the caller read it; ``current`` is its etag now."""

    def __init__(self, current: str) -> None:
        super().__init__(
            _("The object changed meanwhile: read it again."), code="conflict"
        )
        self.current = current


class PreconditionMissing(Refused):
    def __init__(self) -> None:
        super().__init__(
            _("Send If-Match with the ETag of what you read, so that no change of "
              "others is lost."),
            code="precondition_required",
        )  # fmt: skip


def problem(
    status: int,
    code: str,
    detail: object,
    *,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
    **members: int | str,
) -> HttpResponse:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": str(detail),
        "code": code,
        **members,
    }
    if errors:
        body["errors"] = [error.model_dump() for error in errors]
    return HttpResponse(
        json.dumps(body, ensure_ascii=False),
        status=status,
        content_type="application/problem+json",
        headers=headers,
    )


def handlers_install(api: NinjaAPI) -> None:
    handlers: tuple[tuple[type[Exception], Callable[..., HttpResponse]], ...] = (
        (Refused, _refused),
        (ValidationError, _unfit),
        (HttpError, _http_error),
        (Http404, not_found),
        (PermissionDenied, _forbidden),
        (RequestDataTooBig, _too_large),
        (OperationalError, _database_away),
        (InterfaceError, _database_away),
        (redis.RedisError, _redis_away),
        (Exception, unexpected),
    )
    for kind, handler in handlers:
        api.add_exception_handler(kind, handler)


def _refused(request: HttpRequest, error: Refused) -> HttpResponse:
    message = str(error.message)
    errors = []
    if error.field:
        errors = [FieldError(field=error.field, code=error.code, message=message)]
    if isinstance(error, Conflict | Stale):
        return problem(409, error.code, message, errors=errors, current=error.current)
    status = 422
    if isinstance(error, Denied):
        status = 403
        _denied_record(request, error)
    elif isinstance(error, Missing):
        status = 404
    elif isinstance(error, PreconditionMissing):
        status = 428
    return problem(status, error.code, message, errors=errors)


def _denied_record(request: HttpRequest, denied: Denied) -> None:
    """A write that was not permitted leaves a trace, by whoever called."""
    caller = vars(request).get("caller")
    if caller is not None and request.method not in ("GET", "HEAD"):
        refusal_record(actor=caller, path=request.path, scope=denied.scope.value)


# Codes that the services use too; what pydantic calls them is its own affair.
_CODES = {
    "missing": "required",
    "extra_forbidden": "unknown_field",
    "string_too_long": "too_long",
    "greater_than_equal": "out_of_range",
    "less_than_equal": "out_of_range",
}


def _unfit(request: HttpRequest, error: ValidationError) -> HttpResponse:
    """What does not fit the schema: a missing, unknown or wrong field."""
    errors = [_field_error(entry) for entry in error.errors]
    named = ", ".join(sorted({entry.field for entry in errors if entry.field}))
    detail = _("Wrong: %(fields)s.") % {"fields": named} if named else errors[0].message
    return problem(422, "invalid", detail, errors=errors)


def _field_error(entry: Mapping[str, Any]) -> FieldError:
    """``entry["loc"]`` starts with the source and, for a body, its parameter."""
    source, *rest = entry["loc"]
    path = rest[1:] if source == "body" else rest
    kind: str = entry["type"]
    code = _CODES.get(kind, "wrong_type" if kind.endswith("_type") else "invalid")
    message = {
        "required": _("This field is required."),
        "unknown_field": _("There is no such field."),
    }.get(code, entry["msg"])
    if source == "body" and not path:
        message = _("Send a JSON object.")
    return FieldError(field=".".join(map(str, path)), code=code, message=message)


def _http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    """What the framework and the authentication raise."""
    if isinstance(error, AuthenticationError):
        detail = _("Log in, or send Authorization: Bearer <admin token>.")
        headers = {"WWW-Authenticate": "Bearer"}
        return problem(401, "not_authenticated", detail, headers=headers)
    if error.status_code == 403:
        return problem(403, "csrf", error.message)
    if error.status_code == 400:
        detail = _("The body is no JSON: %(why)s.") % {"why": error.__cause__ or "?"}
        return problem(400, "bad_json", detail)
    return problem(error.status_code, "invalid", error.message)


def not_found(request: HttpRequest, error: object = None) -> HttpResponse:
    return problem(404, "not_found", _("There is nothing at this path."))


def _forbidden(request: HttpRequest, error: PermissionDenied) -> HttpResponse:
    return problem(403, "forbidden", str(error) or _("You may not do this."))


def _too_large(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    return problem(413, "too_large", _("The body is too large."))


def _database_away(request: HttpRequest, error: Exception) -> HttpResponse:
    log.warning("the database does not answer: %s", error)
    detail = _("The database does not answer. Try again.")
    return problem(503, "database_unavailable", detail, headers={"Retry-After": "5"})


def _redis_away(request: HttpRequest, error: Exception) -> HttpResponse:
    log.warning("redis does not answer: %s", error)
    detail = _("Redis does not answer, and the answer lies there. Try again.")
    return problem(503, "redis_unavailable", detail, headers={"Retry-After": "5"})


def unexpected(request: HttpRequest, error: Exception) -> HttpResponse:
    named = request_id()
    data = {
        "request_id": named,
        "method": request.method,
        "path": request.path,
    }
    log.error("unexpected failure", exc_info=error, extra={"data": data})
    return problem(
        500,
        "internal",
        _("Something went wrong here. The log has it under this request id."),
        request_id=named,
    )
