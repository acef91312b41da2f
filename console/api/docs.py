"""The description of the API: OpenAPI for programs, a page for people."""

from __future__ import annotations

import functools
import json
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET
from ninja.errors import AuthenticationError, HttpError

from console.api.application import api
from console.api.auth import AUTH

PREFIX = "/api/v1/"


@functools.cache
def schema_build() -> dict[str, Any]:
    """Nothing in it changes while the process lives."""
    built: dict[str, Any] = json.loads(
        json.dumps(api.get_openapi_schema(path_prefix=PREFIX), default=str)
    )
    return built


@require_GET
def schema(request: HttpRequest) -> HttpResponse:
    try:
        if not any(way(request) for way in AUTH):
            raise AuthenticationError
    except HttpError as error:
        return api.on_exception(request, error)
    return JsonResponse(schema_build())


@require_GET
@login_required
def page(request: HttpRequest) -> HttpResponse:
    return render(
        request,
        "api/docs.html",
        {"groups": groups_build(), "version": settings.VERSION},
    )


@functools.cache
def groups_build() -> list[dict[str, Any]]:
    """The operations by topic, in the order in which the routers are mounted."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in schema_build()["paths"].items():
        for method, operation in methods.items():
            entry = _operation(path, method, operation)
            groups.setdefault(operation["tags"][0], []).append(entry)
    return [{"name": name, "operations": entries} for name, entries in groups.items()]


def _operation(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    shape = body and _resolve(body["schema"])
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "scope": operation["x-scope"],
        "description": _paragraphs(operation["description"]),
        "parameters": operation["parameters"],
        "body": shape and _fields(shape),
        "answers": [
            {
                "status": status,
                "meaning": answer["description"],
                "fields": _fields(_answer_shape(answer)) if status < "300" else [],
            }
            for status, answer in operation["responses"].items()
        ],
        "curl": _curl(path, method, shape),
    }


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("\n\n")]


def _answer_shape(answer: dict[str, Any]) -> dict[str, Any]:
    content = answer.get("content", {}).get("application/json")
    return _resolve(content["schema"]) if content else {}


def _resolve(shape: dict[str, Any]) -> dict[str, Any]:
    """The shape behind a reference into the components.

    A body that may be left out refers to its shape through a list of one.
    """
    (shape,) = shape.get("allOf", [shape])
    while "$ref" in shape:
        name = shape["$ref"].rpartition("/")[2]
        shape = schema_build()["components"]["schemas"][name]
    return shape


def _fields(shape: dict[str, Any]) -> list[dict[str, Any]]:
    required = shape.get("required", [])
    return [
        {
            "name": name,
            "type": _type(field),
            "required": name in required,
            "default": json.dumps(field["default"]) if "default" in field else "",
            "description": field.get("description", ""),
        }
        for name, field in shape.get("properties", {}).items()
    ]


def _type(shape: dict[str, Any]) -> str:
    """A type in one short line, such as ``list of text, or null``."""
    shape = _resolve(shape)
    if "enum" in shape:
        return " | ".join(map(str, shape["enum"]))
    if "anyOf" in shape:
        return ", or ".join(_type(part) for part in shape["anyOf"])
    kind = shape.get("type", "any")
    if kind == "array":
        return f"list of {_type(shape['items'])}"
    if kind == "object" and shape.get("properties"):
        inner = ", ".join(
            f"{name}: {_type(part)}" for name, part in shape["properties"].items()
        )
        return f"{{{inner}}}"
    if kind == "object" and isinstance(shape.get("additionalProperties"), dict):
        return f"object of {_type(shape['additionalProperties'])}"
    return "time" if shape.get("format") == "date-time" else str(kind)


def _curl(path: str, method: str, shape: dict[str, Any] | None) -> str:
    verb = "" if method == "get" else f" -X {method.upper()}"
    lines = [f'curl{verb} "$SLUICE{path}"', '-H "Authorization: Bearer $TOKEN"']
    example = shape["examples"][0] if shape else {}
    # Weights may as well say in the body which generation they were made for.
    if method in ("put", "patch") and "generation" not in example:
        lines.append("-H 'If-Match: \"…\"'")
    if shape:
        lines.append(f"-d '{json.dumps(example, ensure_ascii=False)}'")
    return " \\\n  ".join(lines)
