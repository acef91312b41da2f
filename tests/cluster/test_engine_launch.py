"""Commands of the engines that have a command line of their own, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.engines import ArtifactMissing, LaunchOrder, LaunchRefused, artifact_path
from cluster.engines import engine_get as engine

FOLDER = Path("/models/qwen")
FLAGGED = ("vllm", "sglang", "tgi")


def order(
    params: dict[str, Any], artifact: Path | None = FOLDER, host: str = "127.0.0.1"
) -> LaunchOrder:
    return LaunchOrder("qwen", host, 30_500, artifact, params)


VLLM = [
    *("vllm", "serve", "/models/qwen", "--host=127.0.0.1", "--port=30500"),
    "--served-model-name=qwen",
]
SGLANG = [
    *("--model-path=/models/qwen", "--host=127.0.0.1", "--port=30500"),
    *("--served-model-name=qwen", "--enable-metrics"),
]
TGI = [
    *("text-generation-launcher", "--model-id=/models/qwen"),
    *("--hostname=127.0.0.1", "--port=30500"),
    *("--shard-uds-path=/tmp/text-generation-server-30500", "--master-port=20500"),
]


@pytest.mark.parametrize(
    ("name", "params", "command"),
    [
        ("vllm", {}, VLLM),
        (
            "vllm",
            {"max-model-len": 8192, "gpu-memory-utilization": 0.85, "dtype": "auto"},
            [
                *(*VLLM, "--dtype=auto", "--gpu-memory-utilization=0.85"),
                "--max-model-len=8192",
            ],
        ),
        # Options stand by name, whatever order a database gave them.
        # An option that is on by itself is turned off, another one just left out.
        (
            "vllm",
            {"enable-prefix-caching": False, "enforce-eager": False},
            [*VLLM, "--no-enable-prefix-caching"],
        ),
        (
            "vllm",
            {"enable-prefix-caching": True, "trust-remote-code": "true"},
            [*VLLM, "--enable-prefix-caching", "--trust-remote-code"],
        ),
        ("vllm", {"shutdown-timeout": 30}, [*VLLM, "--shutdown-timeout=30"]),
        # What the driver reads is not the engine's.
        ("vllm", {"cpus": 2, "nice": 5, "port": 30_500, "env": "A=b"}, VLLM),
        (
            "vllm",
            {"extra-args": "--max-logprobs 5 --rope-scaling='{\"a b\": 1}' -O3"},
            [*VLLM, "--max-logprobs", "5", '--rope-scaling={"a b": 1}', "-O3"],
        ),
        ("vllm", {"program": "/opt/vllm"}, ["/opt/vllm", *VLLM[1:]]),
        ("sglang", {}, ["sglang", "serve", *SGLANG]),
        (
            "sglang",
            {"program": "/opt/sglang/bin/python3.11"},
            ["/opt/sglang/bin/python3.11", "-m", "sglang.launch_server", *SGLANG],
        ),
        (
            "sglang",
            {"tp-size": 2, "mem-fraction-static": "0.8", "disable-radix-cache": True},
            [
                *("sglang", "serve", *SGLANG, "--disable-radix-cache"),
                *("--mem-fraction-static=0.8", "--tp-size=2"),
            ],
        ),
        ("tgi", {}, TGI),
        (
            "tgi",
            {"num-shard": 2, "sharded": True, "extra-args": "--usage-stats off"},
            [*TGI, "--num-shard=2", "--sharded=true", "--usage-stats", "off"],
        ),
        ("ollama", {"num-parallel": 4}, ["ollama", "serve"]),
    ],
)
def test_launch_parameters_become_a_command(
    name: str, params: dict[str, Any], command: list[str]
) -> None:
    assert engine(name).launch(order(params)) == command


@pytest.mark.parametrize("name", FLAGGED)
def test_a_model_may_be_named_instead_of_an_artifact(name: str) -> None:
    command = engine(name).launch(order({"model": "Qwen/Qwen3-8B"}, None))
    assert sum("Qwen/Qwen3-8B" in word for word in command) == 1
    assert not any("extra" in word or "--model=" in word for word in command)


def test_ollama_is_told_everything_by_variables() -> None:
    params = {"num-parallel": 4, "flash-attention": True, "keep-alive": "1h"}
    assert engine("ollama").environment(order(params)) == {
        "OLLAMA_HOST": "127.0.0.1:30500",
        "OLLAMA_MODELS": "/models/qwen",
        "OLLAMA_NUM_PARALLEL": "4",
        "OLLAMA_FLASH_ATTENTION": "1",
        "OLLAMA_KEEP_ALIVE": "1h",
    }
    variables = engine("ollama").environment(order({"debug": False}, None, "::1"))
    assert variables == {"OLLAMA_HOST": "[::1]:30500", "OLLAMA_DEBUG": "0"}


def test_only_tgi_and_ollama_need_variables() -> None:
    assert engine("tgi").environment(order({})) == {"PROMETHEUS_PORT": "0"}
    for name in ("vllm", "sglang", "llamacpp", "generic"):
        assert engine(name).environment(order({})) == {}


@pytest.mark.parametrize(
    ("name", "params", "artifact", "words"),
    [
        ("vllm", {}, None, "names no artifact, and no model"),
        ("vllm", {"model": "a/b"}, FOLDER, "model is another"),
        ("vllm", {"model": "--host=0.0.0.0"}, None, "parameter model cannot be"),
        ("vllm", {"model": ""}, None, "parameter model cannot be"),
        ("vllm", {"model": 7}, None, "parameter model cannot be"),
        ("vllm", {"ctx-size": 1}, FOLDER, "vLLM takes no parameter ctx-size here"),
        ("vllm", {"max-model-len": "8k!"}, FOLDER, "max-model-len cannot be '8k!'"),
        ("vllm", {"dtype": "a\nb"}, FOLDER, "dtype cannot be"),
        ("vllm", {"enforce-eager": "perhaps"}, FOLDER, "enforce-eager cannot be"),
        ("vllm", {"host": "0.0.0.0"}, FOLDER, "host is not a version's to set"),
        ("vllm", {"served-model-name": "x"}, FOLDER, "served-model-name is not"),
        ("vllm", {"api-key": "x"}, FOLDER, "api-key is not a version's"),
        ("vllm", {"shutdown-timeout": 601}, FOLDER, "takes 0 to 600 seconds"),
        ("vllm", {"shutdown-timeout": -1}, FOLDER, "takes 0 to 600 seconds"),
        ("vllm", {"shutdown-timeout": True}, FOLDER, "takes 0 to 600 seconds"),
        ("sglang", {"max-model-len": 1}, FOLDER, "SGLang takes no parameter max-mod"),
        ("sglang", {"enable-metrics": False}, FOLDER, "enable-metrics is not"),
        ("tgi", {"sharded": "2"}, FOLDER, "sharded cannot be '2'"),
        ("tgi", {"master-port": 1}, FOLDER, "master-port is not a version's"),
        ("ollama", {"host": "0.0.0.0"}, None, "Ollama takes no parameter host here"),
        ("ollama", {"models": "/x"}, None, "Ollama takes no parameter models here"),
        ("ollama", {"extra-args": "-v"}, None, "takes no parameter extra-args here"),
        ("ollama", {"num-parallel": "many"}, None, "num-parallel cannot be 'many'"),
        ("ollama", {"debug": 1}, None, "debug cannot be '1'"),
        ("ollama", {"keep-alive": ""}, None, "keep-alive cannot be ''"),
        ("vllm", {"program": "bin/vllm"}, FOLDER, "takes a name or an absolute path"),
        ("vllm", {"program": ""}, FOLDER, "takes a name or an absolute path"),
        ("ollama", {"program": True}, None, "takes a name or an absolute path"),
    ],
)
def test_a_wrong_parameter_is_refused_by_its_name(
    name: str, params: dict[str, Any], artifact: Path | None, words: str
) -> None:
    with pytest.raises(LaunchRefused) as refusal:
        engine(name).launch(order(params, artifact))
    assert words in refusal.value.detail and refusal.value.detail.endswith(".")
    assert refusal.value.reason in ("bad_param", "no_artifact")


@pytest.mark.parametrize(
    ("name", "extra", "words"),
    [
        ("vllm", "--host 0.0.0.0", "may not hold --host"),
        ("vllm", "--port=1", "may not hold --port=1"),
        # Engines take the beginning of a name for the name, and _ for -.
        ("vllm", "--serv other", "may not hold --serv"),
        ("vllm", "--served_model_name=x", "may not hold --served_model_name=x"),
        ("vllm", "--uds /tmp/x", "may not hold --uds"),
        ("vllm", "-- --host", "may not hold --"),
        ("vllm", "--dtype half", "dtype stands in the parameters and in extra-args"),
        ("vllm", "--a 'b", "parameter extra-args: No closing quotation"),
        ("vllm", 5, "takes text"),
        ("sglang", "--model other", "may not hold --model"),
        ("sglang", "--api-key=s", "may not hold --api-key"),
        ("tgi", "-p3000", "may not hold -p3000"),
        ("tgi", "--hostname ::", "may not hold --hostname"),
    ],
)
def test_extra_arguments_may_not_hold_what_sluice_sets(
    name: str, extra: Any, words: str
) -> None:
    with pytest.raises(LaunchRefused) as refusal:
        engine(name).launch(order({"dtype": "auto", "extra-args": extra}))
    assert words in refusal.value.detail and refusal.value.reason == "bad_param"


@pytest.mark.parametrize(
    ("name", "params", "grace_s"),
    [
        ("vllm", {}, 10.0),
        ("vllm", {"shutdown-timeout": 45}, 55.0),
        ("vllm", {"shutdown-timeout": "long"}, 10.0),
        ("sglang", {}, 30.0),
        ("tgi", {}, 30.0),
        ("llamacpp", {}, 0.0),
    ],
)
def test_an_engine_is_given_the_time_that_it_needs_to_end(
    name: str, params: dict[str, Any], grace_s: float
) -> None:
    assert engine(name).stop_grace_s(params) == grace_s


def test_an_artifact_is_a_file_or_a_folder_as_the_engine_takes_it(
    tmp_path: Path,
) -> None:
    file, folder = tmp_path / "w.gguf", tmp_path / "qwen"
    file.write_bytes(b"w")
    folder.mkdir()
    for path in (file, folder):
        assert artifact_path(str(path), takes_folder=True) == path
    with pytest.raises(ArtifactMissing, match="is not a file"):
        artifact_path(str(folder))
    with pytest.raises(ArtifactMissing, match="is not a folder"):
        artifact_path(str(file), takes_file=False, takes_folder=True)
    with pytest.raises(ArtifactMissing, match="There is no folder"):
        artifact_path(str(tmp_path / "x"), takes_file=False, takes_folder=True)
    assert (engine("ollama").takes_file, engine("ollama").takes_folder) == (False, True)
    takers = ("vllm", "sglang", "tgi", "generic", "ollama")
    assert all(engine(name).takes_folder for name in takers)
    assert not engine("llamacpp").takes_folder
