"""Answers of known length: not streamed, or errors."""

from __future__ import annotations

import gzip
import itertools
from typing import Any

from cluster.engines.mock import payloads, responses
from cluster.engines.mock.ask import Generation
from cluster.engines.mock.steps import Script, Step, Stop, head, pieces
from cluster.engines.mock.switches import Switches

# Sizes of writes that fall into the head, into JSON and inside letters.
_ODD_WRITES = (5, 1, 333, 64, 2, 1200, 11)


def status_script(s: Switches) -> Script:
    """The answer that ``status``, ``headers`` and ``body`` describe."""
    status = s.status or 500
    value = payloads.error(status, payloads.TOLD_TO_FAIL) if s.body is None else s.body
    body = value.encode() if isinstance(value, str) else payloads.encode(value)
    return whole_script(body + b" " * s.huge_body_bytes, s, status=status, tokens=0)


def value_script(value: dict[str, Any], s: Switches) -> Script:
    """An answer that is never streamed: embeddings, scores."""
    if s.odd_fields:
        value = {**payloads.odd_extras(), **value}
    return whole_script(payloads.encode(value) + b" " * s.huge_body_bytes, s)


def answer_script(g: Generation, s: Switches) -> Script:
    """A generated answer that is not streamed."""
    if g.path == payloads.RESPONSES:
        value = responses.answer(g, s)
    elif s.in_band_error is not None:
        value = payloads.error(500, payloads.TOLD_TO_FAIL)
    else:
        value = payloads.answer(g, odd=s.odd_fields, with_usage=not s.no_usage)
    if s.huge_body_bytes:
        value["padding"] = "x" * s.huge_body_bytes
    return whole_script(payloads.encode(value), s, tokens=g.tokens)


def whole_script(
    body: bytes, s: Switches, *, status: int = 200, tokens: int = 1
) -> Script:
    """One body, after the delays of all its tokens together."""
    wait_ms = s.delay_headers_ms + s.delay_first_token_ms
    wait_ms += s.gap_ms * max(0, tokens - 1)
    headers = {"content-type": "application/json"}
    if s.gzip:
        body = gzip.compress(body)
        headers["content-encoding"] = "gzip"
    start = head(status, {**headers, **s.headers}, length=len(body))
    stop, share = _stop(s, tokens)
    if stop is None:
        sent = start + body
    elif share is None:
        return (Step(b"", wait_ms / 1000), stop)
    else:
        # At least one byte is missing, or there would be nothing to notice.
        sent = start + body[: min(len(body) - 1, int(len(body) * share))]
    sizes = itertools.cycle(_ODD_WRITES) if s.odd_fields else None
    first, *rest = pieces(sent, sizes)
    opening = Step(first, wait_ms / 1000, 0 if stop else tokens)
    return (opening, *map(Step, rest), *([stop] if stop else []))


def _stop(s: Switches, tokens: int) -> tuple[Stop | None, float | None]:
    """How the answer stops early, and after what share of its body.

    A share of None means: before the head.
    """
    if s.hang:
        return Stop.SILENCE, None
    for at, stop in ((s.cut_after, Stop.CUT), (s.stall_after, Stop.SILENCE)):
        if at is not None and at <= tokens:
            return stop, None if at < 0 else at / (tokens or 1)
    return None, None
