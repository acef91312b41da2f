"""The error answers of the gateway: one row of the contract's table each."""

from __future__ import annotations

import msgspec

Headers = tuple[tuple[bytes, bytes], ...]


class Problem(msgspec.Struct, frozen=True):
    """An error as a client sees it. ``message`` is one plain sentence."""

    status: int
    type: str
    code: str
    message: str
    param: str | None = None
    headers: Headers = ()
    close: bool = False

    def body(self) -> bytes:
        """The JSON body, with all four keys always there."""
        return msgspec.json.encode(
            {
                "error": {
                    "message": self.message,
                    "type": self.type,
                    "param": self.param,
                    "code": self.code,
                }
            }
        )

    def event(self) -> bytes:
        """The same as a server-sent event, for a stream whose status is out."""
        return b"data: " + self.body() + b"\n\n"


class Refusal(Exception):
    """Raised where a request cannot go on; carries what the client is told."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def _retry_after(seconds: int) -> Headers:
    return ((b"retry-after", b"%d" % seconds),)


def invalid_request(message: str, param: str | None = None) -> Problem:
    return Problem(400, "invalid_request_error", "invalid_request", message, param)


def bad_http(message: str, status: int = 400) -> Problem:
    """The bytes are not the HTTP that is spoken here; the connection closes."""
    return Problem(
        status, "invalid_request_error", "invalid_request", message, close=True
    )


def invalid_api_key(message: str) -> Problem:
    return Problem(
        401,
        "authentication_error",
        "invalid_api_key",
        message,
        headers=((b"www-authenticate", b"Bearer"),),
    )


def model_not_allowed(model: str) -> Problem:
    return Problem(
        403,
        "permission_error",
        "model_not_allowed",
        f"This key may not call the model {model}.",
        "model",
    )


def version_not_allowed() -> Problem:
    return Problem(
        403,
        "permission_error",
        "version_not_allowed",
        "This key may not choose a version: it lacks the scope choose_version.",
    )


def model_not_found(model: str) -> Problem:
    return Problem(
        404,
        "invalid_request_error",
        "model_not_found",
        f"There is no model {model}.",
        "model",
    )


def not_found(path: str) -> Problem:
    return Problem(
        404, "invalid_request_error", "not_found", f"There is nothing at {path}."
    )


def method_not_allowed(path: str, allowed: str) -> Problem:
    return Problem(
        405,
        "invalid_request_error",
        "method_not_allowed",
        f"{path} answers to {allowed} only.",
        headers=((b"allow", allowed.encode()),),
    )


def request_too_large(limit_bytes: int) -> Problem:
    return Problem(
        413,
        "invalid_request_error",
        "request_too_large",
        f"The request body is larger than {limit_bytes} bytes.",
        close=True,
    )


def no_healthy_replica(message: str) -> Problem:
    return Problem(
        503,
        "overloaded_error",
        "no_healthy_replica",
        message,
        headers=_retry_after(5),
    )


def auth_unavailable() -> Problem:
    return Problem(
        503,
        "api_error",
        "auth_unavailable",
        "The key cannot be checked at the moment; try again shortly.",
        headers=_retry_after(1),
    )


def draining() -> Problem:
    return Problem(
        503,
        "overloaded_error",
        "draining",
        "This gateway is shutting down; try again.",
        headers=_retry_after(1),
        close=True,
    )


def upstream_saturated(retry_after_s: int) -> Problem:
    return Problem(
        429,
        "rate_limit_error",
        "upstream_saturated",
        "Every replica that was tried is saturated.",
        headers=_retry_after(retry_after_s),
    )


def upstream_auth() -> Problem:
    return Problem(
        502,
        "api_error",
        "upstream_auth",
        "The replica refused the gateway's credential.",
    )


def upstream_error(detail: str) -> Problem:
    return Problem(502, "api_error", "upstream_error", f"The replica failed: {detail}.")


def upstream_timeout(detail: str) -> Problem:
    return Problem(
        504,
        "timeout_error",
        "upstream_timeout",
        f"The replica took too long: {detail}.",
    )


def internal_error() -> Problem:
    return Problem(500, "api_error", "internal_error", "The gateway failed.")
