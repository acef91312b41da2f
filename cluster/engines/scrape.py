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

from cluster.engines.quantile import p99

# An honest exposition of a large engine is a few hundred kilobytes.
MOST_BYTES = 4 * 1024 * 1024


class Scrape(msgspec.Struct, frozen=True, omit_defaults=True):
    """None is what the engine does not say. Token and time figures are counters
    since the engine's start; ``kv_cache`` is the used share, 0 to 1. The 99th
    percentiles, of the time to first token and of the gap between two tokens, are
    those since the start too."""

    running: float | None = None
    waiting: float | None = None
    kv_cache: float | None = None
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    ttft_seconds: float | None = None
    ttft_count: float | None = None
    ttft_p99_s: float | None = None
    gap_p99_s: float | None = None


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

# Histograms whose 99th percentile is wanted.
VLLM_P99: Names = {
    "ttft_p99_s": ("vllm:time_to_first_token_seconds",),
    # The older name was gone before 0.33.
    "gap_p99_s": (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    ),
}
SGLANG_P99: Names = {
    "ttft_p99_s": ("sglang:time_to_first_token_seconds",),
    "gap_p99_s": ("sglang:inter_token_latency_seconds",),
}

_COMBINE: dict[str, Callable[[Iterable[float]], float]] = {"kv_cache": max}
# SGLang repeats the scheduler's figures for every tensor-parallel rank.
_BOUND = re.compile(rb'[{,]le="([^"]*)"')
_OTHER_RANK = re.compile(rb'[{,]tp_rank="(?!0")')


class Metrics(NamedTuple):
    """Where an engine shows its metrics, and what reads them."""

    path: str
    parse: Callable[[bytes], Scrape]


def scrape_parser(
    names: Names, quantiles: Names | None = None
) -> Callable[[bytes], Scrape]:
    """A parser for one engine's names.

    It raises ``ScrapeFailed`` for an empty, too large or foreign text, and for a
    value that is no number; a text that was cut loses its last, partial line.
    """
    quantiles = quantiles or {}
    wanted = [name for choices in names.values() for name in choices]
    wanted += [f"{name}_bucket" for choices in quantiles.values() for name in choices]
    alternatives = b"|".join(re.escape(name.encode()) for name in wanted)
    line = re.compile(
        rb"^(" + alternatives + rb")(\{[^\n]*\})?[ \t]+([^\s]+)(?:[ \t]+-?\d+)?\r?\n",
        re.MULTILINE,
    )

    def parse(text: bytes) -> Scrape:
        series, histograms = _read(text, line)
        found = _figures(series, names)
        for field, choices in quantiles.items():
            for choice in choices:
                if choice in histograms:
                    found[field] = p99(histograms[choice])
                    break
        return Scrape(**found)

    return parse


Series = dict[str, list[float]]
Histograms = dict[str, dict[float, float]]


def _read(text: bytes, line: re.Pattern[bytes]) -> tuple[Series, Histograms]:
    """The values of each series, and those of histograms by their bounds."""
    if len(text) > MOST_BYTES:
        raise ScrapeFailed(f"the metrics are larger than {MOST_BYTES} bytes")
    series: Series = {}
    histograms: Histograms = {}
    for match in line.finditer(text):
        name, labels, value = match.groups()
        if labels is not None and _OTHER_RANK.search(labels):
            continue
        if not name.endswith(b"_bucket"):
            series.setdefault(name.decode(), []).append(_number(name, value))
        elif labels is not None and (bound := _BOUND.search(labels)):
            counts = histograms.setdefault(name[:-7].decode(), {})
            upto = _number(name, bound[1])
            counts[upto] = counts.get(upto, 0.0) + _number(name, value)
    if not series:
        raise ScrapeFailed("none of the engine's metrics is in the answer")
    return series, histograms


def _figures(series: Series, names: Names) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for field, choices in names.items():
        for choice in choices:
            values = [v for v in series.get(choice, []) if math.isfinite(v)]
            if values:
                found[field] = _COMBINE.get(field, sum)(values)
                break
    return found


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
    name: Metrics("/metrics", parse)
    for name, parse in {
        "vllm": scrape_parser(VLLM, VLLM_P99),
        "sglang": scrape_parser(SGLANG, SGLANG_P99),
        "llamacpp": scrape_parser(LLAMACPP),
        "tgi": scrape_parser(TGI),
    }.items()
}
