"""Settings of a route that change what an engine is sent, on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.engine import MockEngine
from tests.gateway.world import CHAT, ControlPlane, GatewayProcess, apply, route

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("stream", [False, True])
def test_no_answer_gets_longer_than_the_route_allows(
    control: ControlPlane,
    shared_gateway: GatewayProcess,
    key: str,
    engines: tuple[MockEngine, MockEngine],
    stream: bool,
) -> None:
    control.probe("m-v1-1")
    entry = route("m", {"v1": (10_000, [engines[0].address])}, max_tokens=5)
    apply(control, shared_gateway, entry)
    for asked, given in ((None, 5), (3, 3), (5, 5), (6, 5), (100, 5)):
        fields: dict[str, Any] = {} if asked is None else {"max_tokens": asked}
        reply = shared_gateway.chat(key, stream=stream, **fields)
        assert reply.status == 200, reply.body
        outcome = shared_gateway.outcome(reply.headers["x-request-id"])
        assert outcome.completion_tokens == given


def test_counting_tokens_is_left_alone(
    control: ControlPlane,
    shared_gateway: GatewayProcess,
    key: str,
    engines: tuple[MockEngine, MockEngine],
) -> None:
    control.probe("m-v1-1")
    engines[0].set(record=True)
    entry = route("m", {"v1": (10_000, [engines[0].address])}, max_tokens=5)
    apply(control, shared_gateway, entry)
    shared_gateway.request("POST", "/tokenize", key, {"model": "m", "prompt": "a"})
    shared_gateway.request("POST", CHAT, key, {"model": "m", "messages": []})
    bodies = [recorded["body"] for recorded in engines[0].requests()]
    assert ["max_tokens" in str(body) for body in bodies] == [False, True]
