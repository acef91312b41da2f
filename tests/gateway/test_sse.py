"""The event reader: any cut, any mixture, nothing lost and nothing invented."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.gateway.sse import EVENT_BYTES, SseReader

DONE = b"data: [DONE]\n\n"


def event(end: str = "\n", **chunk: Any) -> bytes:
    return f"data: {json.dumps(chunk)}{end}{end}".encode()


def delta(end: str = "\n", finish: str | None = None, **fields: Any) -> bytes:
    return event(end, choices=[{"index": 0, "delta": fields, "finish_reason": finish}])


def read(reader: SseReader, stream: bytes, cuts: list[int]) -> bytes:
    places = sorted({cut % (len(stream) + 1) for cut in cuts})
    parts = zip([0, *places], [*places, len(stream)], strict=True)
    return b"".join(reader.feed(stream[start:end]) for start, end in parts)


events = st.sampled_from(
    [
        delta(role="assistant", content=""),
        delta(content="hello"),
        delta(end="\r\n", content="世界 \u2028 \n\n"),
        delta(reasoning_content="hm"),
        delta(content='{"error": "[DONE]", "usage": {}}'),
        b": comment\n\n",
        b": comment\r\n\r\n",
        b"event: x\nid: 7\ndata: {}\n\n",
        b"data: no json at all\n\n",
        b'data: {"choices":\ndata: []}\n\n',
        event(choices=[], usage=None),
    ]
)


@given(
    st.lists(events, max_size=8), st.booleans(), st.lists(st.integers(0), max_size=9)
)
def test_any_cut_gives_the_same_bytes_and_the_same_reading(
    parts: list[bytes], strip: bool, cuts: list[int]
) -> None:
    tail = delta(finish="stop") + event(
        choices=[], usage={"prompt_tokens": 3, "completion_tokens": 5}
    )
    reader = SseReader(strip_usage=strip)
    passed = read(reader, b"".join(parts) + tail + DONE, cuts)
    kept = delta(finish="stop") if strip else tail
    assert passed == b"".join(parts) + kept + DONE
    assert reader.done and reader.content and not reader.failure
    assert reader.usage is not None and reader.usage.tokens() == (3, 5, None, False)
    assert reader.finish_reason == "stop"


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "a"},
        {"content": [{"type": "text"}]},
        {"reasoning": "a"},
        {"reasoning_content": "a"},
        {"tool_calls": [{"index": 0}]},
    ],
)
def test_the_first_token_of_any_kind_is_content(fields: dict[str, Any]) -> None:
    reader = SseReader()
    reader.feed(delta(role="assistant", content=""))
    reader.feed(delta(content=None, tool_calls=[], reasoning=""))
    assert not reader.content
    reader.feed(delta(**fields))
    assert reader.content


def test_a_text_of_a_completion_is_content() -> None:
    reader = SseReader()
    reader.feed(event(choices=[{"text": "", "finish_reason": None}]))
    assert not reader.content
    reader.feed(event(choices=[{"text": "a"}]))
    assert reader.content


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        ({"message": "out of memory.", "code": 500}, "out of memory"),
        ("plain", "plain"),
        ({"code": 1}, "{'code': 1}"),
    ],
)
def test_an_error_in_the_stream_stops_it_before_the_error(
    error: Any, detail: str
) -> None:
    reader = SseReader()
    stream = delta(content="a") + event(error=error) + DONE
    assert reader.feed(stream) == delta(content="a")
    assert reader.failure == detail
    assert reader.feed(delta(content="b")) == b""


def test_an_abort_is_a_failure_and_no_ending() -> None:
    reader = SseReader()
    assert reader.feed(delta(finish="abort")) == b""
    assert reader.failure and not reader.content


def test_nothing_passes_after_the_end() -> None:
    reader = SseReader()
    assert reader.feed(DONE + delta(content="a")) == DONE
    assert reader.feed(delta(content="b")) == b""


def test_a_last_line_without_its_blank_line_counts_at_the_end() -> None:
    reader = SseReader()
    reader.feed(delta(content="a"))
    assert reader.feed(b"data: [DONE]\n") == b""
    assert reader.end() == b"data: [DONE]\n\n"
    assert reader.done


def test_a_torn_event_is_never_passed_on() -> None:
    reader = SseReader()
    reader.feed(delta(content="a"))
    assert reader.feed(b'data: {"choices":[{"de') == b""
    assert reader.end() == b""
    assert not reader.ended


def test_comments_prove_nothing() -> None:
    reader = SseReader()
    reader.feed(delta(content="a"))
    events = reader.events
    assert reader.feed(b": ping\n\n") == b": ping\n\n"
    assert reader.events == events
    reader.feed(delta(content="b"))
    assert reader.events == events + 1


@given(st.integers(0, 5), st.integers(1, 70_000))
def test_an_event_too_large_to_hold_flows_through_in_parts(
    before: int, step: int
) -> None:
    huge = delta(content="x" * (EVENT_BYTES + before)) + delta(content="y") + DONE
    reader = SseReader()
    passed = held = b""
    for start in range(0, len(huge), max(step, 20_000)):
        part = huge[start : start + max(step, 20_000)]
        held = part
        passed += reader.feed(part)
    assert passed == huge and held
    assert reader.done and not reader.mid_event
