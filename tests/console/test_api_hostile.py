"""Whatever a body, a path or a query holds, the answer is an answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from cluster.actor import SYSTEM
from cluster.services import node_register
from console.api.docs import schema_build
from tests.console.api import Api, body_shape

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    10**40,
    0.5,
    1e308,
    "",
    " ",
    "x" * 70_000,
    "../../etc/passwd",
    "a\nb\r\nc: d",
    "'; DROP TABLE cluster_model; --",
    "\u202e\U0001f600\ufffe",
    "9999-12-31T23:59:59.999999Z",
    "0001-01-01T00:00:00+14:00",
    [],
    ["", None],
    {},
    {"": {"": []}},
    {"v1": 10_000, "": 0},
]
TEXTS = [text for text in VALUES if isinstance(text, str) and text]


@pytest.fixture
def api() -> Api:
    api = Api()
    api.model()
    api.replica("http://127.0.0.1:9001")
    api.post("/teams", {"slug": "search"})
    node_register(name="local", actor=SYSTEM)
    return api


def paths() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every operation, its path filled with things that exist."""
    present = {"name": "qwen", "version": "v1", "slug": "search", "number": "1"}
    present |= {"replica_id": "qwen-v1-1", "action": "drain", "key_id": "none"}
    present |= {"request_id": "0" * 32, "username": "nobody", "token_id": "9"}
    present |= {"record_id": "9"}
    for path, methods in schema_build()["paths"].items():
        for method, operation in methods.items():
            local = re.sub(r"{(\w+)}", lambda m: present[m[1]], path)
            yield method, local.removeprefix("/api/v1"), operation


def bodies(operation: dict[str, Any]) -> Iterator[Any]:
    """The example with each field in turn replaced by each hostile value."""
    for kind in operation.get("requestBody", {}).get("content", {}).values():
        shape = body_shape(kind)
        yield from VALUES
        for field in shape["properties"]:
            for value in VALUES:
                yield shape["examples"][0] | {field: value}


def test_no_body_makes_an_unexpected_failure(api: Api) -> None:
    sent = 0
    for method, path, operation in paths():
        for body in bodies(operation):
            response = api.call(method, path, body)
            assert response.status_code < 500, (method, path, json.dumps(body)[:200])
            sent += 1
    assert sent > 500


def test_no_path_query_or_header_makes_an_unexpected_failure(api: Api) -> None:
    for method, path, operation in paths():
        for text in TEXTS:
            short = text[:500]
            changed = path.replace("qwen", quote(short, safe=""))
            changed = changed.replace("search", quote(short, safe=""))
            query = f"?cursor={quote(short)}&limit={quote(short)}&model={quote(short)}"
            header = {} if set(short) & set("\r\n") else {"if_match": short}
            response = api.call(method, changed + query, {}, **header)
            assert response.status_code < 500, (method, changed, operation)
