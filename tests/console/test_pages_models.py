from __future__ import annotations

import pytest
from django.forms import ValidationError
from django.test import Client

from cluster.models import Model, Version
from console.pages.models import params_parse, params_text
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

VERSION = {"name": "v1", "engine": "vllm", "served_name": "qwen"}


def test_a_model_and_its_first_version_are_made_by_two_forms(page: Client) -> None:
    made = page.post("/new/model", {"name": "qwen", "kind": "chat"})
    assert made["Location"] == "/models/qwen/new-version"
    done = page.post(
        made["Location"], VERSION | {"params": "ctx-size=2048\nflash-attn"}
    )
    assert done["Location"] == "/models/qwen"
    assert Version.objects.get().params == {"ctx-size": 2048, "flash-attn": True}
    text = page.get("/models/qwen").content.decode()
    assert "Version v1 exists." in text and "100\u00a0%" in text and "ctx-size" in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "has space"}, "Use letters, digits"),
        ({"name": "QWEN"}, "A model of this name exists."),
    ],
)
def test_a_refused_model_keeps_the_input_and_says_why_beside_it(
    page: Client, values: dict[str, str], words: str
) -> None:
    fleet.model_add("qwen")
    response = page.post(
        "/new/model", {"kind": "rerank", "description": "kept", **values}
    )
    text = response.content.decode()
    assert response.status_code == 422
    assert words in text and 'aria-invalid="true"' in text and 'value="kept"' in text
    assert Model.objects.count() == 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "v0"}, "has a version of this name"),
        ({"engine": "abacus"}, "Select a valid choice"),
        ({"artifact_sha256": "abc"}, "64 hexadecimal digits"),
        ({"params": "--ctx-size=1"}, "without leading hyphens"),
        ({"params": "a=1\na=2"}, "a stands twice."),
    ],
)
def test_a_refused_version_changes_nothing(
    page: Client, values: dict[str, str], words: str
) -> None:
    fleet.model_add("qwen", "v0")
    response = page.post("/models/qwen/new-version", VERSION | values)
    assert response.status_code == 422
    assert words in response.content.decode()
    assert Version.objects.count() == 1


def test_parameters_keep_text_as_text_and_numbers_as_numbers() -> None:
    assert params_parse("a=1\n b = 0.5 \n\nc=true\nd=x=y\ne=[1]\nf=null\ng") == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": "x=y",
        "e": "[1]",
        "f": "null",
        "g": True,
    }
    with pytest.raises(ValidationError):
        params_parse("a\na")


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("chat", "/v1/chat/completions"),
        ("completion", "/v1/completions"),
        ("embedding", "/v1/embeddings"),
        ("rerank", "/v1/rerank"),
    ],
)
def test_the_example_call_fits_the_kind_and_holds_no_real_key(
    page: Client, kind: str, path: str
) -> None:
    fleet.model_add("qwen", kind=kind)
    text = page.get("/models/qwen").content.decode()
    assert path in text and "$SLUICE_KEY" in text and "sk-" not in text


def test_a_model_may_be_called_new(page: Client) -> None:
    fleet.model_add("new", "v1")
    assert page.get("/models/new").status_code == 200
    assert page.get("/models/new/traffic").status_code == 200


def test_an_empty_list_offers_the_first_model(page: Client) -> None:
    assert "No model yet" in page.get("/models").content.decode()


def test_a_clone_has_every_value_but_the_name(page: Client) -> None:
    fleet.model_add("qwen")
    params = "chat-template=a=b\nctx-size=2048\nflash-attn\nmlock=false\ntemp=0.5"
    sent = {**VERSION, "params": params, "artifact": "/srv/w.gguf", "description": "d"}
    page.post("/models/qwen/new-version", sent)
    text = page.get(f"/models/qwen/new-version?from={VERSION['name']}").content.decode()
    assert "Filled in from" in text and params in text.replace("\r", "")
    first = Version.objects.get()
    clone = {**VERSION, "name": "clone", "params": params_text(first.params)}
    clone |= {"artifact": first.artifact, "description": "d"}
    page.post("/models/qwen/new-version?from=v1", clone)
    second = Version.objects.get(name="clone")
    for name in ("engine", "served_name", "artifact", "params", "description"):
        assert getattr(second, name) == getattr(first, name)
    assert (
        "Filled in" not in page.get("/models/qwen/new-version?from=x").content.decode()
    )
