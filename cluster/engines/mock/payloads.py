"""The JSON of the mock engine's answers: deterministic, and checkable by clients.

A generated text is ``w0 w1 w2 …``, one word a token, so that a client sees at
once whether anything is missing, doubled or out of order.
"""

from __future__ import annotations

import base64
import json
import struct
import time
import zlib
from typing import Any

from cluster.engines.mock.ask import Ask, Generation, words

CREATED = int(time.time())
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
RERANK = "/v1/rerank"
RESPONSES = "/v1/responses"
TOLD_TO_FAIL = "The mock engine was told to fail."
_DIMENSIONS = 8


def token(index: int, *, odd: bool = False) -> str:
    """The text of one token; odd texts carry two-, three- and four-byte letters."""
    word = f"w{index}é✓🚀" if odd and index % 3 == 1 else f"w{index}"
    return word if index == 0 else f" {word}"


def text(tokens: int, *, odd: bool = False) -> str:
    """The whole text of an answer of so many tokens."""
    return "".join(token(index, odd=odd) for index in range(tokens))


def error(status: int, message: str, kind: str = "") -> dict[str, Any]:
    """An error as current engines shape it."""
    kind = kind or ("invalid_request_error" if status < 500 else "api_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def usage(g: Generation) -> dict[str, Any]:
    return {
        "prompt_tokens": g.prompt_tokens,
        "completion_tokens": g.tokens,
        "total_tokens": g.prompt_tokens + g.tokens,
    }


def odd_extras() -> dict[str, Any]:
    """Fields no client knows, as engines add them with every release."""
    return {
        "service_tier": None,
        "prompt_logprobs": None,
        "x_new": {"ключ": "値", "nested": [1, None, {"a": "\u2028"}]},
    }


def _envelope(g: Generation, object_: str, choices: list[Any], odd: bool) -> Any:
    prefix = "chatcmpl" if g.path == CHAT else "cmpl"
    envelope = {
        "id": f"{prefix}-mock",
        "object": object_,
        "created": CREATED,
        "model": g.model,
        "choices": choices,
    }
    return {**odd_extras(), **envelope} if odd else envelope


def answer(g: Generation, *, odd: bool, with_usage: bool) -> dict[str, Any]:
    """The whole answer of a request that is not streamed."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": g.finish_reason}
    content = text(g.tokens, odd=odd)
    if g.path == CHAT:
        choice["message"] = {"role": "assistant", "content": content}
    else:
        choice["text"] = content
    object_ = "chat.completion" if g.path == CHAT else "text_completion"
    value: dict[str, Any] = _envelope(g, object_, [choice], odd)
    if with_usage:
        value["usage"] = usage(g)
    return value


def event(
    g: Generation, content: str | None, *, odd: bool, opening: bool = False
) -> dict[str, Any]:
    """One event of a stream: opening, one with content, or (None) the finish."""
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": g.finish_reason if content is None else None,
    }
    if g.path == CHAT:
        delta: dict[str, Any] = {} if content is None else {"content": content}
        if opening:
            delta = {"role": "assistant", **delta}
        if odd:
            delta |= {"reasoning_content": None, "tool_calls": None}
        choice["delta"] = delta
    else:
        choice["text"] = content or ""
    object_ = "chat.completion.chunk" if g.path == CHAT else "text_completion"
    value: dict[str, Any] = _envelope(g, object_, [choice], odd)
    if odd:
        value["usage"] = None
    return value


def usage_event(g: Generation, *, odd: bool) -> dict[str, Any]:
    """The event before the end that has no choices."""
    object_ = "chat.completion.chunk" if g.path == CHAT else "text_completion"
    value: dict[str, Any] = _envelope(g, object_, [], odd)
    value["usage"] = usage(g)
    return value


def embeddings(ask: Ask, model: str) -> dict[str, Any]:
    """A vector of eight numbers in [-1, 1) for each input, equal for equal inputs."""
    inputs = ask.input if isinstance(ask.input, list) else [ask.input]
    if inputs and all(isinstance(part, int) for part in inputs):
        inputs = [inputs]
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _vector(encode(value), as_text=ask.encoding_format != "float"),
        }
        for index, value in enumerate(inputs)
    ]
    count = words(inputs)
    counts = {"prompt_tokens": count, "total_tokens": count}
    return {"object": "list", "model": model, "data": data, "usage": counts}


def _vector(seed: bytes, *, as_text: bool) -> list[float] | str:
    # Multiples of 2**-15 survive the way through 32-bit floats unchanged.
    numbers = [
        (zlib.crc32(seed, dimension) >> 16) / 32_768 - 1
        for dimension in range(_DIMENSIONS)
    ]
    if as_text:
        packed = struct.pack(f"<{_DIMENSIONS}f", *numbers)
        return base64.b64encode(packed).decode()
    return numbers


def rerank(ask: Ask, model: str) -> dict[str, Any]:
    """Documents by the share of the query's words they contain, best first."""
    wanted = set(ask.query.lower().split())

    def score(document: Any) -> float:
        found = document if isinstance(document, str) else document.get("text", "")
        return len(wanted & set(found.lower().split())) / (len(wanted) or 1)

    results = [
        (score(document), {"index": index, "document": document})
        for index, document in enumerate(ask.documents)
        if isinstance(document, str | dict)
    ]
    results.sort(key=lambda scored: -scored[0])
    best = results[: ask.top_n] if ask.top_n else results
    count = words(ask.query) + words(ask.documents)
    return {
        "id": "rerank-mock",
        "model": model,
        "results": [{**result, "relevance_score": at} for at, result in best],
        "usage": {"total_tokens": count},
    }


def models(model: str) -> dict[str, Any]:
    entry = {"id": model, "object": "model", "created": CREATED, "owned_by": "mock"}
    return {"object": "list", "data": [{**entry, "max_model_len": 32_768}]}


def tokenized(ask: Ask) -> dict[str, Any]:
    prompt = ask.prompt or [message.content for message in ask.messages]
    count = words(prompt)
    return {"count": count, "max_model_len": 32_768, "tokens": list(range(count))}
