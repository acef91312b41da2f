"""One outcome for each request, whatever becomes of it, and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from routing.contracts.outcome import Ending, Outcome, Tier, Why
from tests.fakes.engine import MockEngine
from tests.gateway import world
from tests.gateway.reader import Reader, figures_of, sums
from tests.gateway.world import (
    CHAT,
    ControlPlane,
    GatewayProcess,
    apply,
    read_all,
    read_until,
    route,
)

pytestmark = pytest.mark.processes
Engines = tuple[MockEngine, MockEngine]
MOMENTS = (
    "received_ms",
    "authorized_ms",
    "admitted_ms",
    "first_byte_ms",
    "first_content_ms",
    "last_byte_ms",
    "duration_ms",
)


@pytest.fixture
def gateway(
    control: ControlPlane, engines: Engines, shared_gateway: GatewayProcess
) -> GatewayProcess:
    """``m`` on two replicas, ``solo`` on one, ``dead`` on one that is not there."""
    prepare(control, shared_gateway, engines)
    return shared_gateway


def prepare(control: ControlPlane, gateway: GatewayProcess, engines: Engines) -> None:
    one, other = engines[0].address, engines[1].address
    for name in ("m-v1-1", "m-v1-2", "solo-v1-1", "dead-v1-1", "solo-v2-1"):
        control.probe(name)
    limits = {"first_content_s": 0.5, "idle_s": 0.5}
    apply(
        control,
        gateway,
        route("m", {"v1": (10_000, [one, other])}, timeouts=limits),
        route(
            "solo",
            {"v1": (10_000, [one]), "v2": (0, [other])},
            retries=0,
            timeouts=limits,
        ),
        route("dead", {"v1": (10_000, ["http://127.0.0.1:1"])}, retries=0),
        route("empty", {}),
    )


def moments(outcome: Outcome) -> list[str]:
    """The moments that came; they must be in their order."""
    found = [(name, getattr(outcome, name)) for name in MOMENTS]
    came = [(name, value) for name, value in found if value is not None]
    values = [value for _, value in came]
    assert values == sorted(values) and values[0] >= 0, came
    for attempt in outcome.attempts:
        assert outcome.admitted_ms is not None
        assert outcome.admitted_ms <= attempt.at_ms
        end_ms = attempt.at_ms + attempt.duration_ms
        assert end_ms <= outcome.duration_ms + 0.01
        assert (attempt.connect_ms or 0) <= attempt.duration_ms
    return [name for name, _ in came]


def told(gateway: GatewayProcess, ask: Callable[[], object]) -> Outcome:
    """The one outcome of what happens meanwhile."""
    before = len(gateway.outcomes())
    ask()
    found = gateway.wait_for(lambda: gateway.outcomes()[before:])
    assert len(found) == 1
    return found[0]


# What went well -------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_served_request_tells_every_phase(
    gateway: GatewayProcess, key: str, stream: bool
) -> None:
    outcome = told(gateway, lambda: gateway.chat(key, "solo", stream=stream))
    assert moments(outcome) == list(MOMENTS)
    assert (outcome.status, outcome.ending) == (200, Ending.COMPLETED)
    assert (outcome.first_version, outcome.first_probability) == ("v1", 1.0)
    assert (outcome.version, outcome.replica) == ("v1", "solo-v1-1")
    assert not outcome.chosen and outcome.streamed is stream
    assert (outcome.prompt_tokens, outcome.completion_tokens) == (1, 16)
    assert not outcome.estimated and outcome.finish_reason == "stop"
    assert outcome.generation == 7 and outcome.client == "127.0.0.1"
    assert outcome.bytes_in > 50 and outcome.bytes_out > 50
    (attempt,) = outcome.attempts
    assert attempt.error == "" and attempt.choice is not None
    assert (attempt.choice.tier, attempt.choice.why) == (Tier.READY, Why.ONLY)


def test_cached_tokens_are_told(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 20},
    }
    engines[0].set(status=200, body={"choices": [], "usage": usage})
    outcome = told(gateway, lambda: gateway.chat(key, "solo"))
    counted = (outcome.prompt_tokens, outcome.completion_tokens, outcome.cached_tokens)
    assert counted == (30, 4, 20) and not outcome.estimated


def test_a_very_large_answer_still_tells_its_usage(
    gateway: GatewayProcess, key: str
) -> None:
    sent = {"huge_body_bytes": 1_000_000}
    outcome = told(gateway, lambda: gateway.chat(key, "solo", x_mock=sent))
    assert outcome.bytes_out > 1_000_000
    assert outcome.completion_tokens == 16 and not outcome.estimated
    assert moments(outcome) == list(MOMENTS)


def test_without_usage_tokens_are_estimated_from_events_and_bytes(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(no_usage=True)
    outcome = told(
        gateway, lambda: gateway.chat(key, "solo", stream=True, max_tokens=9)
    )
    assert outcome.estimated and outcome.finish_reason == "length"
    assert outcome.completion_tokens == 9
    assert outcome.prompt_tokens == outcome.bytes_in // 4


def test_a_chosen_version_is_told_as_chosen(gateway: GatewayProcess, key: str) -> None:
    body = {"model": "solo", "messages": []}
    chosen = {"x-sluice-version": "v2"}
    outcome = told(
        gateway, lambda: gateway.request("POST", CHAT, key, body, headers=chosen)
    )
    assert outcome.chosen and outcome.first_version == outcome.version == "v2"
    assert outcome.first_probability == 1.0


def test_a_retry_tells_both_attempts_and_the_moments_of_the_second(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(status=500, delay_headers_ms=50)
    found: list[Outcome] = []

    def twice() -> bool:
        found.append(told(gateway, lambda: gateway.chat(key)))
        return len(found[-1].attempts) == 2

    gateway.wait_for(twice, within_s=15)
    outcome = found[-1]
    first, second = outcome.attempts
    assert (first.replica, first.error) == ("m-v1-1", "status")
    assert (second.replica, second.error) == ("m-v1-2", "")
    assert moments(outcome) == list(MOMENTS)
    assert outcome.first_byte_ms is not None
    assert outcome.first_byte_ms >= second.at_ms >= first.at_ms + first.duration_ms
    assert first.choice is not None and second.choice is not None
    assert first.choice.of == 2 and first.choice.other == "m-v1-2"
    assert first.choice.cost <= first.choice.other_cost
    assert (second.choice.why, second.choice.of) == (Why.ONLY, 1)


# Refused --------------------------------------------------------------------------


def ask_junk(gateway: GatewayProcess, key: str) -> None:
    with gateway.raw(b"GET\r\n\r\n") as connection:
        read_all(connection)


def ask_nothing(gateway: GatewayProcess, key: str) -> None:
    gateway.request("POST", CHAT, key, b"no json")


REFUSALS: dict[str, tuple[Callable[[GatewayProcess, str], object], int, int]] = {
    # Name: what is asked, the status, how many moments there are.
    "junk": (ask_junk, 400, 1),
    "path": (lambda g, k: g.request("GET", "/nothing"), 404, 2),
    "method": (lambda g, k: g.request("GET", CHAT, k), 405, 2),
    "no key": (lambda g, k: g.chat(""), 401, 3),
    "bad key": (lambda g, k: g.chat(k[:-1] + "!"), 401, 3),
    "body": (ask_nothing, 400, 3),
    "model": (lambda g, k: g.chat(k, "none"), 404, 3),
    "no version": (lambda g, k: g.chat(k, "empty"), 503, 3),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_told_with_the_phases_it_came_through(
    gateway: GatewayProcess, key: str, name: str
) -> None:
    ask, status, count = REFUSALS[name]
    outcome = told(gateway, lambda: ask(gateway, key))
    assert (outcome.status, outcome.ending) == (status, Ending.REFUSED)
    came = moments(outcome)
    assert len(came) == count, came
    assert outcome.prompt_tokens is None and outcome.attempts == ()
    assert outcome.code


def test_an_engines_refusal_is_told_with_its_replica(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(status=400, body={"message": "too long"})
    outcome = told(gateway, lambda: gateway.chat(key, "solo"))
    assert (outcome.status, outcome.code) == (400, "engine_refused")
    assert outcome.replica == "solo-v1-1" and outcome.estimated
    assert outcome.completion_tokens == 0


# What went wrong ------------------------------------------------------------------


def test_a_replica_that_cannot_be_reached_has_counted_no_token(
    gateway: GatewayProcess, key: str
) -> None:
    outcome = told(gateway, lambda: gateway.chat(key, "dead"))
    assert (outcome.status, outcome.ending) == (502, Ending.UPSTREAM_FAILED)
    assert outcome.attempts[0].error == "connect"
    assert outcome.prompt_tokens is None and outcome.completion_tokens is None
    assert moments(outcome) == [*MOMENTS[:3], "duration_ms"]


def test_a_timeout_before_content_is_told(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(hang=True)
    outcome = told(gateway, lambda: gateway.chat(key, "solo"))
    assert (outcome.status, outcome.ending) == (504, Ending.TIMED_OUT)
    assert moments(outcome) == [*MOMENTS[:3], "duration_ms"]
    assert outcome.estimated and outcome.completion_tokens == 0


@pytest.mark.parametrize(
    ("switches", "code"),
    [({"cut_after": 3}, "upstream_error"), ({"stall_after": 3}, "upstream_timeout")],
)
def test_a_broken_stream_counts_the_events_that_were_passed_on(
    gateway: GatewayProcess,
    key: str,
    engines: Engines,
    switches: dict[str, Any],
    code: str,
) -> None:
    engines[0].set(gap_ms=20, **switches)

    def ask() -> None:
        with gateway.raw_chat(key, "solo", stream=True) as connection:
            read_all(connection)

    outcome = told(gateway, ask)
    assert (outcome.ending, outcome.code) == (Ending.BROKEN, code)
    assert outcome.estimated and outcome.completion_tokens == 3
    assert outcome.last_byte_ms is None and outcome.first_content_ms is not None


# Clients that leave ---------------------------------------------------------------


def leave_while_sending(gateway: GatewayProcess, key: str) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
    with gateway.raw(f"{head}content-length: 900\r\n\r\n".encode() + b"x" * 9) as sent:
        sent.shutdown(1)
        read_all(sent)


def test_a_client_that_leaves_while_it_sends_is_told(
    gateway: GatewayProcess, key: str
) -> None:
    outcome = told(gateway, lambda: leave_while_sending(gateway, key))
    assert (outcome.status, outcome.ending) == (499, Ending.CLIENT_LEFT)
    assert outcome.bytes_in == 9 and moments(outcome) == ["duration_ms"]


def test_pipelined_requests_of_a_client_that_leaves_are_told_each(
    gateway: GatewayProcess, key: str, engines: Engines
) -> None:
    engines[0].set(hang=True)
    before = len(gateway.outcomes())
    with gateway.raw_chat(key, "solo") as connection:
        engines[0].counters_when(lambda c: c.running == 1)
        for _ in range(2):
            connection.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
    found = gateway.wait_for(
        lambda: o if len(o := gateway.outcomes()[before:]) == 3 else None
    )
    assert {outcome.ending for outcome in found} == {Ending.CLIENT_LEFT}
    assert len({outcome.request_id for outcome in found}) == 3


@pytest.mark.parametrize("phase", ["before_head", "before_content", "streaming"])
def test_a_client_that_leaves_is_told_with_the_phase_it_left_in(
    gateway: GatewayProcess, key: str, engines: Engines, phase: str
) -> None:
    switches: dict[str, dict[str, Any]] = {
        "before_head": {"hang": True},
        "before_content": {"opening_only": True},
        "streaming": {"gap_ms": 30, "tokens": 1000},
    }
    engines[0].set(**switches[phase])

    def ask() -> None:
        with gateway.raw_chat(key, "solo", stream=True) as connection:
            engines[0].counters_when(lambda c: c.running == 1)
            if phase == "streaming":
                read_until(connection, b'"content":" w2"')
        engines[0].counters_when(lambda c: c.running == 0)

    outcome = told(gateway, ask)
    assert (outcome.status, outcome.ending) == (499, Ending.CLIENT_LEFT)
    assert outcome.attempts[0].error == "client_disconnected"
    assert outcome.estimated and outcome.prompt_tokens == outcome.bytes_in // 4
    came = moments(outcome)
    assert "last_byte_ms" not in came
    assert ("first_content_ms" in came) is (phase == "streaming")
    assert outcome.completion_tokens is not None
    assert (outcome.completion_tokens >= 3) is (phase == "streaming")


# A process that ends --------------------------------------------------------------


def test_what_is_broken_off_and_what_came_just_before_is_sent(
    control: ControlPlane, engines: Engines, key: str, folder: Path
) -> None:
    """A stream, a request without an answer and one half sent, when the time is up."""
    environment = {"SLUICE_DRAIN_S": "0"}
    with world.gateway(folder, control.valkey.url, env=environment) as gateway:
        prepare(control, gateway, engines)
        name = gateway.id
        engines[0].set(gap_ms=50, tokens=10_000)
        half = gateway.raw(
            f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n".encode()
        )
        stream = gateway.raw_chat(key, "solo", stream=True)
        whole = gateway.raw_chat(key, "solo")
        read_until(stream, b'"w0"')
        engines[0].counters_when(lambda c: c.running == 2)
        gateway.chat("")
        gateway.signal()
        assert gateway.ended() == 0
        for connection in (half, stream, whole):
            connection.close()
        logged = gateway.outcomes()
    endings = sorted((o.ending, o.code) for o in logged)
    assert endings == [
        (Ending.BROKEN, "draining"),
        (Ending.REFUSED, "draining"),
        (Ending.REFUSED, "draining"),
        (Ending.REFUSED, "invalid_api_key"),
    ]
    reader = Reader(control.client)
    reader.read()
    mine = [outcome for outcome in reader.outcomes if outcome.gateway == name]
    assert mine == logged and reader.last[name] == 4
    cells = reader.cells[name].values()
    assert sum(figures.requests for figures in cells) == 4


# Many -----------------------------------------------------------------------------


@pytest.fixture
def fresh(
    control: ControlPlane, engines: Engines, folder: Path
) -> Iterator[GatewayProcess]:
    with world.gateway(folder, control.valkey.url) as gateway:
        prepare(control, gateway, engines)
        yield gateway


def test_counts_agree_with_the_outcomes_of_a_thousand_mixed_requests(
    fresh: GatewayProcess, control: ControlPlane, engines: Engines, key: str
) -> None:
    gateway, name = fresh, fresh.id
    engines[0].set(fail_rate=0.2, seed=3)
    asked = 0
    for number in range(150):
        gateway.chat(key, stream=bool(number % 2), max_tokens=number % 5 + 1)
        gateway.chat(key, "solo", max_tokens=2)
        gateway.chat(key, "dead" if number % 10 == 0 else "none")
        with gateway.raw_chat(key, "solo", stream=True, max_tokens=50) as connection:
            if number % 3:
                read_until(connection, b"x-request-id")
        with gateway.raw() as many:
            many.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" * 3)
            read_until(many, b"}}")
        asked += 7
    reader = Reader(control.client)

    def all_there() -> bool:
        reader.read()
        cells = reader.cells.get(name, {}).values()
        counted = sum(figures.requests for figures in cells)
        return counted == reader.last.get(name, 0) == asked

    gateway.wait_for(all_there, within_s=15)
    mine = [outcome for outcome in reader.outcomes if outcome.gateway == name]
    assert len(mine) == len({outcome.request_id for outcome in mine}) == asked > 1000
    assert reader.lost[name] == 0
    assert sums(list(reader.cells[name].values())) == figures_of(mine)
    assert len({outcome.ending for outcome in mine}) >= 4
    for outcome in mine:
        moments(outcome)
    gateway.wait_for(lambda: gateway.metric("sluice_count_cells_waiting") == 0)
    assert gateway.metric("sluice_outcomes_waiting") == 0
    assert gateway.metric("sluice_outcomes_dropped_total") == 0
