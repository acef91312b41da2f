"""The main job, on the demo's real replicas, with the official client."""

from __future__ import annotations

import itertools
import math
import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.product import Product, eventually

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

MESSAGES = [{"role": "user", "content": "Say hello to the water."}]


def weights_put(product: Product, **weights: int) -> float:
    """Set the weights and wait until every gateway has applied them; for how long."""
    with product.api() as api:
        generation = api.get("/models/smollm2/weights").json()["generation"]
        body = {"weights": weights, "generation": generation}
        began = time.monotonic()
        response = api.put("/models/smollm2/weights", json=body)
        assert response.status_code == 200, response.text
        eventually(lambda: applied_everywhere(api), within_s=20)
        return time.monotonic() - began


def applied_everywhere(api: httpx.Client) -> bool:
    applied = api.get("/models/smollm2/weights").json()["applied"]
    return bool(applied["of"] == applied["gateways"] == 2)


def split(product: Product, requests: int, *, concurrency: int = 8) -> Counter[str]:
    """How many of so many one-token requests each version served."""
    headers = {"Authorization": f"Bearer {product.secret('demo-key')}"}
    body = {"model": "smollm2", "messages": MESSAGES, "max_tokens": 1}
    with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:

        def one(_number: int) -> str:
            response = client.post(f"{product.gateway}/v1/chat/completions", json=body)
            assert response.status_code == 200, response.text
            return response.headers["x-sluice-version"]

        with ThreadPoolExecutor(concurrency) as pool:
            return Counter(pool.map(one, range(requests)))


def assert_binomial(count: int, n: int, share: float) -> None:
    """Within 5.5 standard deviations: a false alarm in more than a million runs."""
    deviation = math.sqrt(n * share * (1 - share))
    assert abs(count - n * share) <= 5.5 * deviation, (count, n, share)


def test_the_official_client_lists_models_and_chats(demo: Product) -> None:
    with demo.openai() as client:
        assert [model.id for model in client.models.list()] == ["smollm2"]
        assert client.models.retrieve("smollm2").object == "model"
        answer = client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "Name a colour."}],
            max_tokens=12,
        )
        assert (answer.choices[0].message.content or "").strip()
        assert answer.usage is not None and answer.usage.completion_tokens > 0


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_both_versions_stream_real_text(demo: Product, version: str) -> None:
    with demo.openai(default_headers={"x-sluice-version": version}) as client:
        stream = client.chat.completions.with_raw_response.create(
            model="smollm2",
            messages=[{"role": "user", "content": "Tell me about rivers."}],
            max_tokens=16,
            stream=True,
        )
        assert stream.headers["x-sluice-version"] == version
        chunks = [
            choice.delta.content
            for chunk in stream.parse()
            for choice in chunk.choices
            if choice.delta.content
        ]
    assert len(chunks) > 4
    assert len("".join(chunks).split()) > 2


def test_an_unknown_model_and_a_wrong_key_are_the_clients_own_errors(
    demo: Product,
) -> None:
    with demo.openai(max_retries=0) as client, pytest.raises(openai.NotFoundError) as e:
        client.chat.completions.create(
            model="nobody", messages=[{"role": "user", "content": "hi"}]
        )
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        demo.openai(max_retries=0).with_options(api_key="sk-wrong").models.list()


def test_the_real_engines_say_what_they_are(demo: Product) -> None:
    """Asked by the schedule, within half a minute of being up."""

    def told() -> bool:
        with demo.api() as api:
            items = api.get("/replicas").json()["items"]
        return all(item["engine"] is not None for item in items)

    eventually(told, within_s=45)
    with demo.api() as api:
        engines = [item["engine"] for item in api.get("/replicas").json()["items"]]
    assert {engine["serves_name"] for engine in engines} == {True}
    assert len({engine["release"] for engine in engines}) == 1
    assert not any(engine["releases_differ"] for engine in engines)


def test_2000_requests_split_as_configured_and_are_measured_to_the_last(
    demo: Product,
) -> None:
    weights_put(demo, v1=10_000, v2=0)
    weights_put(demo, v1=9000, v2=1000)
    counts = split(demo, 2000)
    assert_binomial(counts["v2"], 2000, 0.1)
    with demo.api() as api:

        def shown() -> dict[str, Any]:
            answer: dict[str, Any] = api.get("/models/smollm2/weights").json()
            return answer

        eventually(lambda: shown()["measured"]["requests"] == counts, within_s=30)
        assert shown()["check"]["n"] == 2000
        assert shown()["check"]["holds"]
    ready = httpx.get(f"{demo.console}/readyz", trust_env=False).json()
    assert "share_check" not in [warning["code"] for warning in ready["warnings"]]


def test_a_version_of_weight_0_gets_nothing_and_weights_act_within_two_seconds(
    demo: Product,
) -> None:
    took_s = [weights_put(demo, v1=10_000, v2=0)]
    assert split(demo, 300) == {"v1": 300}
    took_s.append(weights_put(demo, v1=0, v2=10_000))
    assert split(demo, 100) == {"v2": 100}
    took_s.append(weights_put(demo, v1=9000, v2=1000))
    # A busy machine may hold one of them up.
    assert min(took_s) < 2


def test_a_killed_replica_fails_no_request_and_comes_back(demo: Product) -> None:
    """``kill -9`` under load: everything that can be retried is."""
    weights_put(demo, v1=10_000, v2=0)
    victim = replica_pid(demo, "smollm2-v1-1")
    stop, failures, served = threading.Event(), [], itertools.count()

    def load() -> None:
        headers = {"Authorization": f"Bearer {demo.secret('demo-key')}"}
        body = {"model": "smollm2", "messages": MESSAGES, "max_tokens": 1}
        with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:
            while not stop.is_set():
                response = client.post(f"{demo.gateway}/v1/chat/completions", json=body)
                if response.status_code == 200:
                    next(served)
                else:
                    failures.append(response.text)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: next(served) > 20, within_s=30)
        os.kill(victim, signal.SIGKILL)
        killed_at = time.monotonic()
        eventually(lambda: replica_pid(demo, "smollm2-v1-1") != victim, within_s=40)
        eventually(lambda: demo.states()["smollm2-v1-1"] == "healthy", within_s=40)
        assert time.monotonic() - killed_at < 45
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []


def replica_pid(product: Product, replica_id: str) -> int:
    with product.api() as api:
        return int(api.get(f"/replicas/{replica_id}").json()["pid"])
