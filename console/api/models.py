from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.http import HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from cluster import services
from cluster.models import Engine, Kind, Model, Version
from cluster.selectors import model_get, version_get
from console.accounts.grants import Scope
from console.api.auth import ApiRequest, needs
from console.api.etags import IfMatch, etag_check, etag_of
from console.api.paging import Paging, page
from console.api.shapes import ACT, WRITE, Input, Page, answers, choices

router = Router(tags=["Models"])


class ModelOut(BaseModel):
    name: str
    kind: str
    description: str
    created_at: datetime


class ModelPage(Page[ModelOut]):
    pass


class ModelCreate(Input):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "qwen3-8b", "kind": "chat"}]}
    )
    name: str
    kind: str = Field(Kind.CHAT.value, json_schema_extra=choices(Kind.values))
    description: str = Field("", max_length=500)


class ModelChange(Input):
    """Name and kind of a model stay for ever."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"description": "For the support desk"}]}
    )
    description: str | None = None


class VersionOut(BaseModel):
    """``used_at`` is when the first replica used it: immutable since then."""

    model: str
    name: str
    engine: str
    served_name: str
    artifact: str
    artifact_sha256: str
    params: dict[str, Any]
    description: str
    used_at: datetime | None
    created_at: datetime


class VersionPage(Page[VersionOut]):
    pass


class VersionCreate(Input):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "v2",
                    "engine": "llamacpp",
                    "served_name": "qwen3-8b",
                    "artifact": "/models/qwen3-8b-q4.gguf",
                    "params": {"ctx-size": 8192, "parallel": 4},
                }
            ]
        }
    )
    name: str
    engine: str = Field(json_schema_extra=choices(Engine.values))
    served_name: str = Field(description="What the engine calls the model.")
    artifact: str = Field("", max_length=500)
    artifact_sha256: str = ""
    params: dict[str, Any] = Field(
        {},
        description="Launch parameters as the engine spells them, flat. For processes "
        "also program, model and extra-args, and env, port, cpus, memory-mb and nice.",
    )
    description: str = Field("", max_length=500)


def model_out(model: Model) -> ModelOut:
    return ModelOut.model_validate(model, from_attributes=True)


def model_etag(model: Model) -> str:
    return etag_of(model.name, model.kind, model.description)


def version_out(version: Version, model: Model) -> VersionOut:
    return VersionOut(
        model=model.name,
        name=version.name,
        engine=version.engine,
        served_name=version.served_name,
        artifact=version.artifact,
        artifact_sha256=version.artifact_sha256,
        params=version.params,
        description=version.description,
        used_at=version.used_at,
        created_at=version.created_at,
    )


@router.get("", response=answers(200, ModelPage, 422))
def model_list(request: ApiRequest, paging: Query[Paging]) -> ModelPage:
    """Every model, by name."""
    rows, following = page(request, Model.objects.all(), order=("name",), paging=paging)
    return ModelPage(items=[model_out(row) for row in rows], next=following)


@router.post("", auth=needs(Scope.FLEET), response=answers(201, ModelOut, *WRITE))
def model_create(
    request: ApiRequest, body: ModelCreate, response: HttpResponse
) -> Status[ModelOut]:
    """A model without versions; its first version will get all of its traffic."""
    model = services.model_create(
        name=body.name,
        kind=body.kind,
        description=body.description,
        actor=request.auth,
    )
    response["Location"] = f"{request.path}/{model.name}"
    response["ETag"] = f'"{model_etag(model)}"'
    return Status(201, model_out(model))


@router.get("/{name}", response=answers(200, ModelOut, 404))
def model_show(request: ApiRequest, name: str, response: HttpResponse) -> ModelOut:
    """One model, with the ETag that a change needs."""
    model = model_get(name=name)
    response["ETag"] = f'"{model_etag(model)}"'
    return model_out(model)


@router.patch(
    "/{name}",
    auth=needs(Scope.FLEET),
    response=answers(200, ModelOut, 404, 409, 428, *WRITE),
)
def model_change(
    request: ApiRequest,
    name: str,
    body: ModelChange,
    response: HttpResponse,
    if_match: IfMatch = None,
) -> ModelOut:
    """Change the description. Needs If-Match."""
    with transaction.atomic():
        model = model_get(name=name, lock=True)
        etag_check(if_match, model_etag(model), required=True)
        services.model_update(
            model=model, description=body.description, actor=request.auth
        )
    response["ETag"] = f'"{model_etag(model)}"'
    return model_out(model)


@router.delete(
    "/{name}", auth=needs(Scope.FLEET), response=answers(204, None, 404, 409, 422, *ACT)
)
def model_delete(
    request: ApiRequest, name: str, if_match: IfMatch = None
) -> Status[None]:
    """Delete a model that never had a replica, with its versions and its route."""
    with transaction.atomic():
        model = model_get(name=name, lock=True)
        etag_check(if_match, model_etag(model))
        services.model_delete(model=model, actor=request.auth)
    return Status(204, None)


@router.get("/{name}/versions", response=answers(200, VersionPage, 404, 422))
def version_list(request: ApiRequest, name: str, paging: Query[Paging]) -> VersionPage:
    """The releases of the model, oldest first."""
    model = model_get(name=name)
    rows, following = page(request, model.versions.all(), order=("id",), paging=paging)
    items = [version_out(row, model) for row in rows]
    return VersionPage(items=items, next=following)


@router.post(
    "/{name}/versions",
    auth=needs(Scope.FLEET),
    response=answers(201, VersionOut, 404, *WRITE),
)
def version_create(
    request: ApiRequest, name: str, body: VersionCreate, response: HttpResponse
) -> Status[VersionOut]:
    """A release of the model. The first one gets weight 10 000, later ones 0."""
    model = model_get(name=name)
    version = services.version_create(
        model=model,
        name=body.name,
        engine=body.engine,
        served_name=body.served_name,
        artifact=body.artifact,
        artifact_sha256=body.artifact_sha256,
        params=body.params,
        description=body.description,
        actor=request.auth,
    )
    response["Location"] = f"{request.path}/{version.name}"
    return Status(201, version_out(version, model))


@router.get("/{name}/versions/{version}", response=answers(200, VersionOut, 404))
def version_show(request: ApiRequest, name: str, version: str) -> VersionOut:
    """One release of the model."""
    model = model_get(name=name)
    return version_out(version_get(model=model, name=version), model)
