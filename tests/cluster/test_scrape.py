"""Engines' metrics: by exact names, over their releases, from hostile text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engines.scrape import (
    LLAMACPP,
    MOST_BYTES,
    SGLANG,
    TGI,
    VLLM,
    Scrape,
    ScrapeFailed,
    scrape_parser,
)

vllm, sglang = scrape_parser(VLLM), scrape_parser(SGLANG)
llamacpp, tgi = scrape_parser(LLAMACPP), scrape_parser(TGI)
CAPTURE = Path(__file__).parent / "captures" / "llamacpp_metrics.txt"


def test_a_real_llama_cpp_is_read() -> None:
    assert llamacpp(CAPTURE.read_bytes()) == Scrape(
        running=0, waiting=0, prompt_tokens=60, generated_tokens=515
    )


def test_vllm_sums_its_ranks_and_takes_the_fullest_cache() -> None:
    text = b"""\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="q"} 3.0
vllm:num_requests_running{engine="1",model_name="q"} 4.0
vllm:num_requests_waiting{engine="0",model_name="q"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="q"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="q"} 0.75
vllm:generation_tokens_total{engine="0",model_name="q"} 1.5e+06
vllm:time_to_first_token_seconds_sum{engine="0",model_name="q"} 12.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="q"} 50.0
"""
    assert vllm(text) == Scrape(
        running=7,
        waiting=0,
        kv_cache=0.75,
        generated_tokens=1.5e6,
        ttft_seconds=12.5,
        ttft_count=50,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("vllm:kv_cache_usage_perc", 0.5), ("vllm:gpu_cache_usage_perc", 0.5)],
)
def test_renamed_series_are_read_under_either_name(name: str, value: float) -> None:
    assert vllm(f'{name}{{model_name="q"}} {value}\n'.encode()).kv_cache == value


def test_the_newer_name_wins_where_both_are_exposed() -> None:
    text = b"vllm:gpu_cache_usage_perc 0.1\nvllm:kv_cache_usage_perc 0.9\n"
    assert vllm(text).kv_cache == 0.9


def test_sglang_counts_tensor_parallel_ranks_once() -> None:
    text = b"""\
sglang:num_running_reqs{model_name="q",tp_rank="0",dp_rank="0"} 2
sglang:num_running_reqs{model_name="q",tp_rank="1",dp_rank="0"} 2
sglang:num_running_reqs{model_name="q",tp_rank="0",dp_rank="1"} 5
sglang:token_usage{tp_rank="0"} 0.4
"""
    assert sglang(text) == Scrape(running=7, kv_cache=0.4)


def test_tgi_has_names_without_a_total() -> None:
    text = b"tgi_queue_size 4\ntgi_batch_current_size 8\n"
    assert tgi(text) == Scrape(running=8, waiting=4)


def test_names_that_only_begin_alike_are_not_taken() -> None:
    text = b"vllm:num_requests_waiting_by_reason 9\nvllm:num_requests_running 1\n"
    assert vllm(text) == Scrape(running=1)


def test_a_cut_text_loses_only_its_last_line() -> None:
    text = b"vllm:num_requests_running 12\nvllm:num_requests_waiting 34"
    assert vllm(text) == Scrape(running=12)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>not found</html>",
        b"\x00\xff\xfe" * 100,
        b"llamacpp:requests_processing 1\n",
        b"vllm:num_requests_running banana\n",
        b"a" * (MOST_BYTES + 1),
    ],
)
def test_what_is_no_exposition_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(ScrapeFailed):
        vllm(text)


def test_values_that_are_no_finite_number_count_as_unsaid() -> None:
    text = b"vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running 1\n"
    assert vllm(text) == Scrape(running=1)


@given(st.binary(max_size=500))
def test_any_bytes_give_a_scrape_or_a_reason(noise: bytes) -> None:
    try:
        assert vllm(b"vllm:num_requests_running 1\n" + noise).running is not None
    except ScrapeFailed as reason:
        assert str(reason)
