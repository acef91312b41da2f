"""What the answers of every engine have in common, above all the wrong ones."""

from __future__ import annotations

import msgspec

from cluster.health import Probe, Reading

# No health answer is longer; a list of models may hold some hundred entries.
BODY_LIMIT = 65_536

UP = Reading(Probe.UP)
_SNIPPET_CHARS = 120


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def down(reason: str, detail: str) -> Reading:
    return Reading(Probe.DOWN, reason, detail)


def strangeness(status: int, body: bytes) -> Reading | None:
    """A reading for answers that no engine gives, whatever it is; else None.

    A reader stops after ``BODY_LIMIT`` bytes and hands over at most one more.
    """
    if len(body) > BODY_LIMIT:
        return down("too_large", f"The answer is longer than {BODY_LIMIT} bytes.")
    if 300 <= status < 400:
        return down("redirect", f"Answered {status}, a redirect; no engine does that.")
    if status in (401, 403):
        return down("auth", f"Answered {status}: the engine wants a credential.")
    if body.lstrip()[:1] == b"<":
        return down("html", f"Answered {status} with a web page: not an engine.")
    return None


def unexpected(status: int, body: bytes) -> Reading:
    """A reading for an answer whose status is the news."""
    text = snippet(body)
    return down("http_status", f"Answered {status}{': ' if text else '.'}{text}")


def snippet(body: bytes) -> str:
    """The start of a body on one line, without anything that does not print."""
    text = body[: 4 * _SNIPPET_CHARS].decode("utf-8", "replace")
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[:_SNIPPET_CHARS]


def json_field(body: bytes, *path: str) -> object:
    """The value at the path, None if the body is no JSON or has no such field."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def name_offered(served_name: str, status: int, body: bytes) -> Reading:
    """Whether an OpenAI list of models has this very name."""
    if reading := strangeness(status, body):
        return reading
    if status != 200:
        return unexpected(status, body)
    try:
        names = [model.id for model in msgspec.json.decode(body, type=_Models).data]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return down("wrong_answer", "The list of models is not OpenAI's.")
    if served_name in names:
        return UP
    shown = ", ".join(snippet(name.encode()) for name in sorted(names)[:5])
    return down(
        "model_not_offered",
        f"Serves {shown or 'no model'}{', …' if len(names) > 5 else ''}; "
        f"not {served_name}.",
    )
