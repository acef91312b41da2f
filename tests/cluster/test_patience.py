"""How long slow engines are waited for, by what their histograms say is usual."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engines.quantile import p99
from cluster.engines.rates import load_failed, load_next
from cluster.engines.scrape import METRICS, Scrape
from cluster.health.load import Load
from cluster.health.patience import deep_timeout_s, hang_after_s

INF = math.inf


@pytest.mark.parametrize(
    ("buckets", "value"),
    [
        ({}, None),
        ({1.0: 99, INF: 99}, None),
        ({1.0: 100, INF: 100}, 0.99),
        ({1.0: 50, 2.0: 100, INF: 100}, 1.98),
        ({1.0: 990, 5.0: 1000, INF: 1000}, 1.0),
        ({1.0: 0, 2.0: 0, 4.0: 200, INF: 200}, 3.98),
        # All that is known of it is that it is slower than the last bound.
        ({1.0: 50, 2.0: 90, INF: 100}, 2.0),
        ({INF: 100}, None),
        # None of these is a histogram.
        ({1.0: 120, INF: 100}, None),
        ({1.0: 90, 2.0: 50, INF: 100}, None),
        ({-1.0: 100, INF: 100}, None),
        ({1.0: math.nan, INF: 100}, None),
        ({math.nan: 100, INF: 100}, None),
        ({1.0: 100, INF: INF}, None),
        ({1.0: 100, INF: math.nan}, None),
    ],
)
def test_the_99th_percentile_of_a_histogram(
    buckets: dict[float, float], value: float | None
) -> None:
    assert p99(buckets) == (None if value is None else pytest.approx(value))


@given(st.dictionaries(st.floats(), st.floats(), max_size=8), st.floats())
def test_any_buckets_give_a_finite_time_or_none(
    buckets: dict[float, float], total: float
) -> None:
    value = p99({**buckets, INF: total})
    assert value is None or (value > 0 and math.isfinite(value))


def test_percentiles_are_read_from_the_histograms_of_vllm() -> None:
    text = b"""\
vllm:num_requests_running{engine="0"} 1
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="q"} 40
vllm:time_to_first_token_seconds_bucket{engine="1",le="1.0",model_name="q"} 60
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="q"} 40
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="q"} 60
vllm:inter_token_latency_seconds_bucket{le="5.0"} 0
vllm:inter_token_latency_seconds_bucket{le="7.5"} 1000
vllm:inter_token_latency_seconds_bucket{le="+Inf"} 1000
"""
    found = METRICS["vllm"].parse(text)
    assert found.ttft_p99_s == 0.99
    assert found.gap_p99_s == pytest.approx(7.475)
    older = text.replace(b"inter_token_latency", b"time_per_output_token")
    assert METRICS["vllm"].parse(older).gap_p99_s == found.gap_p99_s
    renamed = text.replace(b"vllm:num_requests_running", b"sglang:num_running_reqs")
    renamed = renamed.replace(b"vllm:", b"sglang:")
    assert METRICS["sglang"].parse(renamed).ttft_p99_s == 0.99


@pytest.mark.parametrize(
    "bucket",
    [
        b'_bucket{le="banana"} 5',
        b'_bucket{le="1.0"} banana',
        b"_bucket 5",
        b'_bucket{model="le=1"} 5',
        b'_bucket{le=""} 5',
    ],
)
def test_a_broken_histogram_is_a_stated_reason_or_left_alone(bucket: bytes) -> None:
    text = b"vllm:num_requests_running 1\nvllm:inter_token_latency_seconds" + bucket
    try:
        assert METRICS["vllm"].parse(text + b"\n") == Scrape(running=1)
    except ValueError as reason:
        assert "is no number" in str(reason)


@pytest.mark.parametrize(
    ("usual_s", "deep_s", "hang_s"),
    [
        (None, 10, 30),
        (0.2, 10, 30),
        (2.0, 10, 30),
        (4.0, 20, 40),
        (30.0, 120, 300),
        (9000.0, 120, 300),
    ],
)
def test_slow_engines_are_given_more_time_but_not_any(
    usual_s: float | None, deep_s: float, hang_s: float
) -> None:
    load = Load(1.0, ttft_p99_s=usual_s, gap_p99_s=usual_s)
    assert deep_timeout_s(load) == deep_s
    assert hang_after_s(load) == hang_s


def test_without_a_reading_the_fixed_times_stand() -> None:
    assert (deep_timeout_s(None), hang_after_s(None)) == (10, 30)


def test_what_was_usual_is_known_while_the_metrics_hang_and_not_of_a_new_engine() -> (
    None
):
    scrape = Scrape(running=1, ttft_p99_s=3.0, gap_p99_s=4.0)
    first = load_next(None, scrape, 1.0)
    failed = load_failed(load_failed(first, "timeout", "t", 6.0), "not_up", "n", 9.0)
    assert (failed.ttft_p99_s, failed.gap_p99_s) == (3.0, 4.0)
    assert failed.running is None
    fresh = load_next(failed, Scrape(running=1), 12.0)
    assert (fresh.ttft_p99_s, fresh.gap_p99_s) == (None, None)
