"""What may be asked of a model: one row for each path."""

from __future__ import annotations

from typing import NamedTuple


class Endpoint(NamedTuple):
    """``kinds`` are the kinds of model that offer it. One that ``streams`` takes the
    field ``stream``, and ``stream_options`` to be asked for its usage. What runs no
    model, and so uses no tokens, is not ``metered``."""

    path: str
    kinds: tuple[str, ...]
    streams: bool = False
    metered: bool = True


ENDPOINTS = {
    endpoint.path: endpoint
    for endpoint in (
        Endpoint("/v1/chat/completions", ("chat",), streams=True),
        Endpoint("/v1/completions", ("chat", "completion"), streams=True),
        Endpoint("/v1/embeddings", ("embedding",)),
        Endpoint("/v1/rerank", ("rerank",)),
        Endpoint("/tokenize", ("chat", "completion"), metered=False),
        Endpoint("/detokenize", ("chat", "completion"), metered=False),
    )
}
