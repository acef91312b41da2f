"""The management API put together: routers, failures, schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from django.conf import settings
from ninja import NinjaAPI
from ninja.operation import Operation

from console.api.audit import router as audit_router
from console.api.auth import AUTH
from console.api.json_body import StrictParser
from console.api.keys import router as keys_router
from console.api.models import router as models_router
from console.api.nodes import router as nodes_router
from console.api.problems import handlers_install
from console.api.replicas import router as replicas_router
from console.api.requests import router as requests_router
from console.api.requests import usage_router
from console.api.revisions import gateways_router
from console.api.revisions import router as revisions_router
from console.api.routes import router as routes_router
from console.api.teams import router as teams_router
from console.api.tokens import router as tokens_router
from console.api.users import router as users_router
from routing.contracts.route import RouteSettings

_REF = "#/components/schemas/{name}"


class ManagementApi(NinjaAPI):
    def get_openapi_operation_id(self, operation: Operation) -> str:
        return str(operation.view_func.__name__)

    def get_openapi_schema(self, **arguments: Any) -> Any:
        schema = super().get_openapi_schema(**arguments)
        _problems_mark(schema)
        _scopes_mark(schema, self)
        _route_settings_add(schema["components"]["schemas"])
        return schema


def _problems_mark(schema: dict[str, Any]) -> None:
    """Problems have a media type of their own."""
    for path in schema["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    content = answer["content"]
                    content["application/problem+json"] = content.pop(
                        "application/json"
                    )


def _scopes_mark(schema: dict[str, Any], api: NinjaAPI) -> None:
    """Each operation says the scope that its caller needs, as ``x-scope``."""
    scopes = {
        api.get_openapi_operation_id(operation): _scope(operation)
        for _prefix, router in api._routers
        for view in router.path_operations.values()
        for operation in view.operations
    }
    for path in schema["paths"].values():
        for operation in path.values():
            operation["x-scope"] = scopes[operation["operationId"]]


def _scope(operation: Operation) -> str:
    """The one scope that all ways in ask for."""
    ways: Iterable[Any] = operation.auth_callbacks or AUTH
    (scope,) = {way.scope.value for way in ways}
    return str(scope)


def _route_settings_add(schemas: dict[str, Any]) -> None:
    """The settings of a route are described by the value that checks them."""
    _shapes, components = msgspec.json.schema_components(
        [RouteSettings], ref_template=_REF
    )
    properties = components["RouteSettings"]["properties"]
    for name in ("RouteOut", "RoutePut"):
        schemas[name]["properties"] |= properties
        schemas[name]["additionalProperties"] = False
    schemas |= {
        name: shape for name, shape in components.items() if name != "RouteSettings"
    }


api = ManagementApi(
    title="Sluice management API",
    version=settings.VERSION,
    description=(
        "Everything the console can do. Lists answer a page and the cursor of the "
        "next one. Failures are application/problem+json and change nothing. Writes "
        "that change an existing object take If-Match with the ETag that was read."
    ),
    urls_namespace="api",
    auth=AUTH,
    parser=StrictParser(),
    docs_url=None,
    openapi_url=None,
)
handlers_install(api)
api.add_router("/models", models_router)
api.add_router("/models", routes_router)
api.add_router("/replicas", replicas_router)
api.add_router("/nodes", nodes_router)
api.add_router("/revisions", revisions_router)
api.add_router("/gateways", gateways_router)
api.add_router("/teams", teams_router)
api.add_router("/keys", keys_router)
api.add_router("/requests", requests_router)
api.add_router("/users", users_router)
api.add_router("/tokens", tokens_router)
api.add_router("/usage", usage_router)
api.add_router("/audit", audit_router)
