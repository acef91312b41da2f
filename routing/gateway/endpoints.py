"""What may be asked of a model: one row for each path."""

from __future__ import annotations

from typing import NamedTuple

from routing.gateway.responses import ResponsesReader
from routing.gateway.sse import SseReader


class Endpoint(NamedTuple):
    """``kinds`` are the kinds of model that offer it. One that ``streams`` takes the
    field ``stream``; one that ``asks_usage`` has to be asked by ``stream_options`` for
    the usage of a stream. ``reader`` reads its streams. What runs no model, and so uses
    no tokens, is not ``metered``. ``most_tokens`` are the fields that bound the length
    of an answer, the one to be added first; none where nothing is generated.
    """

    path: str
    kinds: tuple[str, ...]
    streams: bool = False
    asks_usage: bool = False
    reader: type[SseReader] = SseReader
    metered: bool = True
    most_tokens: tuple[str, ...] = ()


# The last is llama.cpp's own name.
_MOST_TOKENS = ("max_tokens", "max_completion_tokens", "n_predict")


ENDPOINTS = {
    endpoint.path: endpoint
    for endpoint in (
        Endpoint(
            "/v1/chat/completions",
            ("chat",),
            streams=True,
            asks_usage=True,
            most_tokens=_MOST_TOKENS,
        ),
        Endpoint(
            "/v1/completions",
            ("chat", "completion"),
            streams=True,
            asks_usage=True,
            most_tokens=_MOST_TOKENS,
        ),
        Endpoint(
            "/v1/responses",
            ("chat",),
            streams=True,
            reader=ResponsesReader,
            most_tokens=("max_output_tokens",),
        ),
        Endpoint("/v1/embeddings", ("embedding",)),
        Endpoint("/v1/rerank", ("rerank",)),
        Endpoint("/tokenize", ("chat", "completion"), metered=False),
        Endpoint("/detokenize", ("chat", "completion"), metered=False),
    )
}
