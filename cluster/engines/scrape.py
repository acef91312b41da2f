"""What an engine's Prometheus text says about its load.

Only the names below are looked for: an engine exposes hundreds of series, a
cluster has hundreds of engines, and they are all read every few seconds. The names
are those of the releases in use; where an engine renamed a series, both stand in
the order of preference. Series of several engine processes behind one address
(data parallel ranks) are summed, a share such as the KV cache takes the fullest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

# An honest exposition of a large engine is a few hundred kilobytes.
MOST_BYTES = 4 * 1024 * 1024


class Scrape(msgspec.Struct, frozen=True, omit_defaults=True):
    """None is what the engine does not say. Token and time figures are counters
    since the engine's start; ``kv_cache`` is the used share, 0 to 1."""

    running: float | None = None
    waiting: float | None = None
    kv_cache: float | None = None
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    ttft_seconds: float | None = None
    ttft_count: float | None = None


class ScrapeFailed(ValueError):
    """The text is no exposition of this engine; the message says why."""


# field → names in order of preference. The order decides between releases.
Names = Mapping[str, tuple[str, ...]]

VLLM: Names = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    # Renamed in 0.9.2; the old name was gone in 0.12.
    "kv_cache": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generated_tokens": ("vllm:generation_tokens_total",),
    "ttft_seconds": ("vllm:time_to_first_token_seconds_sum",),
    "ttft_count": ("vllm:time_to_first_token_seconds_count",),
}
SGLANG: Names = {
    "running": ("sglang:num_running_reqs",),
    "waiting": ("sglang:num_queue_reqs",),
    "kv_cache": ("sglang:token_usage",),
    "prompt_tokens": ("sglang:prompt_tokens_total",),
    "generated_tokens": ("sglang:generation_tokens_total",),
    "ttft_seconds": ("sglang:time_to_first_token_seconds_sum",),
    "ttft_count": ("sglang:time_to_first_token_seconds_count",),
}
# No latency and no KV cache here: the latter was removed in 2025.
LLAMACPP: Names = {
    "running": ("llamacpp:requests_processing",),
    "waiting": ("llamacpp:requests_deferred",),
    "kv_cache": ("llamacpp:kv_cache_usage_ratio",),
    "prompt_tokens": ("llamacpp:prompt_tokens_total",),
    "generated_tokens": ("llamacpp:tokens_predicted_total",),
}
TGI: Names = {
    "running": ("tgi_batch_current_size",),
    "waiting": ("tgi_queue_size",),
    "prompt_tokens": ("tgi_request_input_length_sum",),
    "generated_tokens": ("tgi_request_generated_tokens_sum",),
}

_COMBINE: dict[str, Callable[[Iterable[float]], float]] = {"kv_cache": max}
# SGLang repeats the scheduler's figures for every tensor-parallel rank.
_OTHER_RANK = re.compile(rb'[{,]tp_rank="(?!0")')


class Metrics(NamedTuple):
    """Where an engine shows its metrics, and what reads them."""

    path: str
    parse: Callable[[bytes], Scrape]


def scrape_parser(names: Names) -> Callable[[bytes], Scrape]:
    """A parser for one engine's names.

    It raises ``ScrapeFailed`` for an empty, too large or foreign text, and for a
    value that is no number; a text that was cut loses its last, partial line.
    """
    wanted = [name for choices in names.values() for name in choices]
    alternatives = b"|".join(re.escape(name.encode()) for name in wanted)
    line = re.compile(
        rb"^(" + alternatives + rb")(\{[^\n]*\})?[ \t]+([^\s]+)(?:[ \t]+-?\d+)?\r?\n",
        re.MULTILINE,
    )

    def parse(text: bytes) -> Scrape:
        return _parse(text, line, names)

    return parse


def _parse(text: bytes, line: re.Pattern[bytes], names: Names) -> Scrape:
    if len(text) > MOST_BYTES:
        raise ScrapeFailed(f"the metrics are larger than {MOST_BYTES} bytes")
    series: dict[str, list[float]] = {}
    for match in line.finditer(text):
        name, labels, value = match.groups()
        if labels is not None and _OTHER_RANK.search(labels):
            continue
        series.setdefault(name.decode(), []).append(_number(name, value))
    if not series:
        raise ScrapeFailed("none of the engine's metrics is in the answer")
    found: dict[str, float] = {}
    for field, choices in names.items():
        for choice in choices:
            values = [v for v in series.get(choice, []) if math.isfinite(v)]
            if values:
                found[field] = _COMBINE.get(field, sum)(values)
                break
    return Scrape(**found)


def _number(name: bytes, value: bytes) -> float:
    try:
        return float(value)
    except ValueError:
        shown = value[:20].decode("ascii", "replace")
        raise ScrapeFailed(
            f"{name.decode()} is {shown!r}, which is no number"
        ) from None


# By the name of the engine whose series they are.
METRICS = {
    name: Metrics("/metrics", scrape_parser(names))
    for name, names in {
        "vllm": VLLM,
        "sglang": SGLANG,
        "llamacpp": LLAMACPP,
        "tgi": TGI,
    }.items()
}
