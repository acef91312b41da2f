"""``/v1/responses`` of the mock engine: typed events, no ``[DONE]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cluster.engines.mock.ask import Generation
from cluster.engines.mock.course import Mark, course, pause_s
from cluster.engines.mock.payloads import CREATED, TOLD_TO_FAIL, encode, text, token
from cluster.engines.mock.steps import Step, Stop
from cluster.engines.mock.switches import Switches

_ID = "resp-mock"
_ITEM = "msg-mock"
_FAILURE = {"code": "server_error", "message": TOLD_TO_FAIL}


def answer(g: Generation, s: Switches, status: str = "") -> dict[str, Any]:
    """The whole answer, as it also stands in the last event."""
    failed = status == "failed" or (not status and s.in_band_error is not None)
    cut = g.finish_reason == "length"
    ended = "failed" if failed else "incomplete" if cut else "completed"
    content = {"type": "output_text", "text": text(g.tokens), "annotations": []}
    item = {
        "type": "message",
        "id": _ITEM,
        "role": "assistant",
        "status": ended,
        "content": [content],
    }
    value: dict[str, Any] = {
        "id": _ID,
        "object": "response",
        "created_at": CREATED,
        "status": status or ended,
        "model": g.model,
        "error": _FAILURE if failed else None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": [] if failed or status == "in_progress" else [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    if not s.no_usage and status != "in_progress":
        value["usage"] = {
            "input_tokens": g.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": g.tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": g.prompt_tokens + g.tokens,
        }
    return value


def events(g: Generation, s: Switches) -> Iterator[Step | Stop]:
    """The events of a stream, up to where it is told to stop."""
    numbers = iter(range(1_000_000))

    def event(kind: str, **fields: Any) -> Step:
        value = {"type": kind, "sequence_number": next(numbers), **fields}
        return Step(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode(value)))

    where = {"item_id": _ITEM, "output_index": 0, "content_index": 0}
    yield event("response.created", response=answer(g, s, "in_progress"))
    if s.opening_only:
        yield Stop.SILENCE
        return
    for at in course(g.tokens, s):
        if isinstance(at, Stop):
            yield at
        elif at is Mark.FAILURE:
            yield event("response.failed", response=answer(g, s, "failed"))
        elif at is Mark.FINISH:
            yield event("response.output_text.done", text=text(g.tokens), **where)
            whole = answer(g, s)
            yield event(f"response.{whole['status']}", response=whole)
        else:
            step = event("response.output_text.delta", delta=token(at), **where)
            yield step._replace(after_s=pause_s(at, s), tokens=1)
