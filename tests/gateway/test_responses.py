"""``/v1/responses``: its events are read as exactly as those of the other endpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engines.mock.ask import Generation
from cluster.engines.mock.responses import events
from cluster.engines.mock.steps import Step
from cluster.engines.mock.switches import Switches
from routing.contracts.outcome import Ending
from routing.gateway.responses import ResponsesReader
from routing.gateway.usage import Tokens
from tests.fakes.engine import MockEngine
from tests.gateway.world import ControlPlane, GatewayProcess, apply, route

Engines = tuple[MockEngine, MockEngine]


def stream_of(tokens: int, **switches: Any) -> list[bytes]:
    """The events of the mock engine."""
    wanted = Generation("/v1/responses", "m", tokens, 3, "stop", True, False)
    found = events(wanted, Switches(**switches))
    return [step.data for step in found if isinstance(step, Step)]


@given(st.data(), st.integers(0, 4))
def test_a_stream_is_passed_on_byte_by_byte_wherever_it_is_cut(
    data: st.DataObject, tokens: int
) -> None:
    whole = b"".join(stream_of(tokens))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    reader = ResponsesReader(strip_usage=True)
    starts, ends = [0, *cuts], [*cuts, len(whole)]
    passed = [reader.feed(whole[a:b]) for a, b in zip(starts, ends, strict=True)]
    assert b"".join(passed) == whole
    assert reader.done and not reader.failure
    assert (reader.tokens, reader.finish_reason) == (tokens, "stop")
    assert reader.usage is not None
    assert reader.usage.tokens() == Tokens(3, tokens, 0)


def test_content_begins_with_the_first_delta_that_says_something() -> None:
    reader = ResponsesReader()
    created, first, *_rest = stream_of(2)
    reader.feed(created)
    reader.feed(b'event: x\ndata: {"type":"response.output_text.delta","delta":""}\n\n')
    assert not reader.content
    reader.feed(first)
    assert (reader.content, reader.tokens) == (True, 1)


@pytest.mark.parametrize(
    ("event", "says", "refuses"),
    [
        (
            {"type": "response.failed", "response": {"error": {"message": "it broke"}}},
            "it broke",
            False,
        ),
        ({"type": "response.failed"}, "it failed without a message", False),
        ({"type": "error", "message": "no room", "code": "x"}, "no room", False),
        ({"type": "error", "error": {"message": "no", "code": 400}}, "no", True),
        ({"error": {"message": "no type"}}, "no type", False),
    ],
)
def test_a_run_that_failed_is_a_failure(
    event: dict[str, Any], says: str, refuses: bool
) -> None:
    reader = ResponsesReader()
    assert reader.feed(b"data: %b\n\n" % json.dumps(event).encode()) == b""
    assert (reader.failure, reader.refusal) == (says, refuses)


# Through the gateway ---------------------------------------------------------------


@pytest.fixture
def gateway(
    control: ControlPlane, engines: Engines, shared_gateway: GatewayProcess
) -> GatewayProcess:
    for name in ("m-v1-1", "m-v1-2", "solo-v1-1"):
        control.probe(name)
    one, other = (engine.address for engine in engines)
    apply(
        control,
        shared_gateway,
        route("m", {"v1": (10_000, [one, other])}),
        route("solo", {"v1": (10_000, [one])}, retries=0, max_tokens=5),
    )
    return shared_gateway


@pytest.fixture
def client(gateway: GatewayProcess, key: str) -> Iterator[openai.OpenAI]:
    base = f"http://127.0.0.1:{gateway.port}/v1"
    with openai.OpenAI(api_key=key, base_url=base, max_retries=0) as client:
        yield client


@pytest.mark.processes
def test_the_official_client_gets_the_whole_answer(
    gateway: GatewayProcess, client: openai.OpenAI
) -> None:
    raw = client.responses.with_raw_response.create(model="m", input="a b c")
    answer = raw.parse()
    assert answer.status == "completed" and answer.output_text.startswith("w0 w1")
    assert answer.usage is not None and answer.usage.output_tokens == 16
    outcome = gateway.outcome(raw.headers["x-request-id"])
    assert (outcome.prompt_tokens, outcome.completion_tokens) == (3, 16)
    assert outcome.ending is Ending.COMPLETED and not outcome.estimated


@pytest.mark.processes
def test_the_official_client_gets_every_event(
    gateway: GatewayProcess, client: openai.OpenAI
) -> None:
    with client.responses.with_streaming_response.create(
        model="m", input="a b c", stream=True
    ) as raw:
        request_id = raw.headers["x-request-id"]
        kinds = [event.type for event in raw.parse()]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.delta") == 16
    outcome = gateway.outcome(request_id)
    assert (outcome.prompt_tokens, outcome.completion_tokens) == (3, 16)
    assert outcome.finish_reason == "stop" and outcome.first_content_ms is not None
    assert not outcome.estimated


@pytest.mark.processes
def test_a_run_that_fails_before_content_is_tried_elsewhere_and_after_it_is_told(
    gateway: GatewayProcess, client: openai.OpenAI, engines: Engines
) -> None:
    """litellm#36768: a failed run is no empty, normal stop."""
    engines[0].set(in_band_error="before")
    for _request in range(4):
        stream = client.responses.create(model="m", input="a", stream=True)
        assert [event.type for event in stream][-1] == "response.completed"
    with pytest.raises(openai.InternalServerError):
        client.responses.create(model="solo", input="a")
    engines[0].set(in_band_error=3, gap_ms=20)
    seen = []
    with pytest.raises(openai.APIError, match="told to fail"):
        for event in client.responses.create(model="solo", input="a", stream=True):
            seen.append(event.type)
    assert seen.count("response.output_text.delta") == 3
    assert "response.failed" not in seen and "response.completed" not in seen


@pytest.mark.processes
def test_a_stream_that_is_cut_says_so(client: openai.OpenAI, engines: Engines) -> None:
    engines[0].set(cut_after=3, gap_ms=20)
    with pytest.raises(openai.APIError):
        list(client.responses.create(model="solo", input="a", stream=True))


@pytest.mark.processes
def test_the_route_bounds_the_length_of_the_answer(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="solo", input="a", max_output_tokens=100)
    assert answer.usage is not None and answer.usage.output_tokens == 5
    answer = client.responses.create(model="solo", input="a")
    assert answer.usage is not None and answer.usage.output_tokens == 5
    assert answer.status == "incomplete"
