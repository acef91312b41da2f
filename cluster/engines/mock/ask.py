"""What the mock engine reads of a request."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = False


class Message(msgspec.Struct):
    content: Any = None


class Ask(msgspec.Struct):
    """The known fields of all endpoints; others are ignored, as engines do."""

    model: str = ""
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    messages: list[Message] = []
    prompt: Any = None
    input: Any = None
    encoding_format: str = "float"
    query: str = ""
    documents: list[Any] = []
    top_n: int | None = None
    x_mock: dict[str, Any] | None = None


class Generation(NamedTuple):
    """All that decides the bytes of a generated answer, besides the switches."""

    path: str
    model: str
    tokens: int
    prompt_tokens: int
    finish_reason: str
    streamed: bool
    usage_event: bool


ask_decode = msgspec.json.Decoder(Ask).decode


def words(value: Any) -> int:
    """How many words a prompt, a content or a list of either has; the mock's tokens.

    A prompt may also come as token numbers, which count one each.
    """
    if isinstance(value, str):
        return len(value.split())
    if isinstance(value, list):
        return sum(1 if isinstance(part, int) else words(part) for part in value)
    if isinstance(value, dict):
        return words(value.get("text") or value.get("content"))
    return 0


def generation(ask: Ask, path: str, *, tokens: int, tokens_win: bool) -> Generation:
    """``tokens`` counts where the request names no maximum, or where it wins."""
    most = ask.max_completion_tokens or ask.max_tokens or ask.max_output_tokens
    limited = most is not None and not tokens_win
    options = ask.stream_options
    prompt = ask.prompt or ask.input or [message.content for message in ask.messages]
    return Generation(
        path=path,
        model=ask.model,
        tokens=max(0, most) if limited and most is not None else tokens,
        prompt_tokens=words(prompt),
        finish_reason="length" if limited else "stop",
        streamed=bool(ask.stream),
        usage_event=options is not None and bool(options.include_usage),
    )
