"""A caller of the management API, which holds every answer to the common rules."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, cast

from django.http import HttpResponse
from django.test import Client

from cluster.actor import SYSTEM
from console.accounts.models import User
from console.accounts.services import token_issue
from console.api.docs import schema_build

ROOT = "/api/v1"


class Api:
    """Calls as the token ``ci`` of the user grace; paths start after ``/api/v1``."""

    def __init__(self) -> None:
        self.user, _made = User.objects.get_or_create(
            username="grace", defaults={"role": "admin"}
        )
        self.token, self.secret = token_issue(user=self.user, name="ci", actor=SYSTEM)
        self.client = Client(raise_request_exception=False)

    def call(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> HttpResponse:
        """``body`` is JSON, or bytes as they are; ``if_match="…"`` is a header."""
        named = {"Authorization": f"Bearer {self.secret}"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = self.client.generic(
            method.upper(),
            ROOT + path,
            b"" if body is None else data,
            content_type="application/json",
            headers=named,
        )
        answer = cast("HttpResponse", response)
        common_rules(answer)
        return answer

    def get(self, path: str, **headers: str) -> Any:
        response = self.call("get", path, **headers)
        assert response.status_code == 200, response.content
        return read(response)

    def post(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        return self.call("post", path, body, **headers)

    def put(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        return self.call("put", path, body, **headers)

    def patch(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        return self.call("patch", path, body, **headers)

    def delete(self, path: str, **headers: str) -> HttpResponse:
        return self.call("delete", path, **headers)

    def model(
        self, name: str = "qwen", versions: tuple[str, ...] = ("v1", "v2")
    ) -> None:
        assert self.post("/models", {"name": name}).status_code == 201
        for version in versions:
            body = {"name": version, "engine": "generic", "served_name": "q"}
            made = self.post(f"/models/{name}/versions", body)
            assert made.status_code == 201, made.content

    def replica(self, address: str, model: str = "qwen", version: str = "v1") -> str:
        body = {"model": model, "version": version, "driver": "static"}
        made = self.post("/replicas", body | {"address": address})
        assert made.status_code == 201, made.content
        return str(read(made)["id"])


def read(response: HttpResponse) -> Any:
    return json.loads(response.content)


def body_shape(kind: dict[str, Any]) -> dict[str, Any]:
    """The shape of a request body of one media type, from the components."""
    (shape,) = kind["schema"].get("allOf", [kind["schema"]])
    name = shape["$ref"].rpartition("/")[2]
    found: dict[str, Any] = schema_build()["components"]["schemas"][name]
    return found


def common_rules(response: HttpResponse) -> None:
    """Every answer has an id and is not cached; every failure is a whole problem."""
    assert len(response["X-Request-Id"]) == 32
    assert response["Cache-Control"] == "no-store"
    if response.status_code < 400:
        return
    assert response["Content-Type"] == "application/problem+json"
    body = read(response)
    assert body["status"] == response.status_code
    assert body["title"] == HTTPStatus(response.status_code).phrase
    assert body["type"] == "about:blank"
    assert body["code"] and body["detail"]
    for entry in body.get("errors", []):
        assert set(entry) == {"field", "code", "message"}
        assert entry["code"] and entry["message"]


def refusal(response: HttpResponse) -> tuple[int, str, list[tuple[str, str]]]:
    """Status, code, and (field, code) of each field error."""
    body = read(response)
    fields = [(entry["field"], entry["code"]) for entry in body.get("errors", [])]
    return response.status_code, body["code"], fields
