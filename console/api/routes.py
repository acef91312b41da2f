from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import redis
from django.http import HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, ConfigDict, Field

from console.accounts.grants import Scope
from console.api.auth import ApiRequest, needs
from console.api.etags import IfMatch, generation_seen
from console.api.paging import Paging, page
from console.api.shapes import WRITE, Input, Page, answers
from routing import services
from routing.evidence.shares import Agreement
from routing.selectors import applied_state, generation_list, route_get, route_view
from routing.selectors.measured import Split, check_list, measured_list, split_list

router = Router(tags=["Traffic"])


class RouteOut(BaseModel):
    """The settings of the route, as ``PUT`` takes them, and its generation."""

    model_config = ConfigDict(extra="allow")
    generation: int


class RoutePut(BaseModel):
    """All settings of a route; what is left out gets its default.

    The fields are those of ``routing.contracts.route.RouteSettings``, which also
    checks them: the schema is completed from it.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [{"retries": 2, "timeouts": {"first_content_s": 60}}]
        },
    )
    generation: int | None = Field(None, strict=True, description="As If-Match.")


class Applied(BaseModel):
    """How many of the live gateways serve by this revision or a later one."""

    revision: int
    gateways: int
    of: int


class Measured(BaseModel):
    """What all gateways served since the generation was applied, without the requests
    whose client chose the version. Everything but ``n`` is by version, empty while
    ``n`` is 0: ``shares`` in basis points that sum to 10 000, ``intervals`` with the
    lower and upper bound of 95 % confidence, ``requests`` as counted."""

    n: int
    shares: dict[str, int]
    intervals: dict[str, list[int]]
    requests: dict[str, int]


class GatewayChecked(BaseModel):
    """``holds`` is null while the gateway does not draw by this generation."""

    gateway: str
    holds: bool | None
    drawn: dict[str, int]


class Checked(BaseModel):
    """Whether the live gateways draw versions by the weights.

    ``result`` is ``holds``, ``fails``, ``few`` (only a gross error would show),
    ``one_version``, ``nothing_drawn`` or ``no_weights``. ``n`` counts the draws,
    ``chi_square`` and ``p`` are null where they would mean nothing. ``evidence`` is how
    many times better other shares explain the draws of the worst gateway; the check
    fails from 10 000 on, and 1e300 stands for what cannot be.
    """

    result: Agreement
    holds: bool
    n: int
    drawn: dict[str, int]
    chi_square: float | None
    p: float | None
    evidence: float
    gateways: list[GatewayChecked]


class WeightsOut(BaseModel):
    """``wanted`` is in basis points by version. ``applied`` and ``check`` are null
    while Redis does not answer."""

    generation: int
    wanted: dict[str, int]
    applied: Applied | None
    measured: Measured
    check: Checked | None


class WeightsPut(Input):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"weights": {"v1": 9000, "v2": 1000}, "generation": 12}]
        }
    )
    weights: dict[str, int] = Field(
        description="Basis points, sum 10 000; versions left out get 0."
    )
    generation: int | None = Field(None, description="As If-Match.")
    reason: str = Field("", max_length=200)


class GenerationOut(BaseModel):
    generation: int
    weights: dict[str, int]
    reason: str
    actor: str
    restored_from: int | None
    created_at: datetime


class GenerationPage(Page[GenerationOut]):
    pass


class Restore(Input):
    model_config = ConfigDict(json_schema_extra={"examples": [{"generation": 7}]})
    generation: int = Field(description="Which one to bring back.")


def _applied() -> Applied | None:
    try:
        state = applied_state()
    except redis.RedisError:
        return None
    return Applied(revision=state.revision, gateways=state.gateways, of=state.of)


def _measured(splits: list[Split], name: str) -> Measured:
    found = measured_list(splits)[name]
    shares = found.shares if found.n else []
    return Measured(
        n=found.n,
        shares={share.version: share.share_bp for share in shares},
        intervals={s.version: [s.low_bp, s.high_bp] for s in shares},
        requests={share.version: share.requests for share in shares},
    )


def _check(splits: list[Split], name: str) -> Checked | None:
    try:
        found = check_list(splits)[name]
    except redis.RedisError:
        return None
    chi = found.together.chi_square
    return Checked(
        result=found.agreement,
        holds=not found.fails,
        n=found.together.n,
        drawn=found.drawn,
        chi_square=chi and round(chi.statistic, 4),
        p=chi and round(chi.p, 6),
        evidence=min(found.evidence, 1e300),
        gateways=[
            GatewayChecked(
                gateway=each.gateway,
                holds=None if each.verdict is None else not each.verdict.fails,
                drawn=each.drawn,
            )
            for each in found.gateways
        ],
    )


def _weights(name: str, response: HttpResponse) -> WeightsOut:
    view = route_view(model=name)
    response["ETag"] = f'"{view.route.generation}"'
    name = view.route.model.name
    splits = split_list(model=name)
    return WeightsOut(
        generation=view.route.generation,
        wanted={version.name: weight_bp for version, weight_bp in view.weights},
        applied=_applied(),
        measured=_measured(splits, name),
        check=_check(splits, name),
    )


def _route(name: str, response: HttpResponse) -> RouteOut:
    view = route_view(model=name)
    response["ETag"] = f'"{view.route.generation}"'
    settings: dict[str, Any] = msgspec.to_builtins(view.settings)
    return RouteOut(generation=view.route.generation, **settings)


@router.get("/{name}/route", response=answers(200, RouteOut, 404))
def route_show(request: ApiRequest, name: str, response: HttpResponse) -> RouteOut:
    """The settings in force. The ETag is the generation."""
    return _route(name, response)


@router.put(
    "/{name}/route",
    auth=needs(Scope.TRAFFIC),
    response=answers(200, RouteOut, 404, 409, 428, *WRITE),
)
def route_put(
    request: ApiRequest,
    name: str,
    body: RoutePut,
    response: HttpResponse,
    if_match: IfMatch = None,
) -> RouteOut:
    """Replace the settings of a route. Needs the generation that you read, in
    If-Match or in the body."""
    services.route_settings_set(
        route=route_get(model=name),
        settings=body.model_extra or {},
        generation=generation_seen(if_match, body.generation),
        actor=request.auth,
    )
    return _route(name, response)


@router.get("/{name}/weights", response=answers(200, WeightsOut, 404))
def weights_show(request: ApiRequest, name: str, response: HttpResponse) -> WeightsOut:
    """The shares that are wanted, how many gateways apply them, and what was
    served; and whether the gateways draw by them."""
    return _weights(name, response)


@router.put(
    "/{name}/weights",
    auth=needs(Scope.TRAFFIC),
    response=answers(200, WeightsOut, 404, 409, 428, *WRITE),
)
def weights_put(
    request: ApiRequest,
    name: str,
    body: WeightsPut,
    response: HttpResponse,
    if_match: IfMatch = None,
) -> WeightsOut:
    """Give every version its share. Needs the generation that you read, in If-Match
    or in the body. Gateways apply it within two seconds."""
    services.weights_set(
        route=route_get(model=name),
        weights=body.weights,
        generation=generation_seen(if_match, body.generation),
        reason=body.reason,
        actor=request.auth,
    )
    return _weights(name, response)


@router.get("/{name}/weights/history", response=answers(200, GenerationPage, 404, 422))
def weights_history(
    request: ApiRequest, name: str, paging: Query[Paging]
) -> GenerationPage:
    """The generations of the route, newest first."""
    rows, following = page(
        request,
        generation_list(route=route_get(model=name)),
        order=("-number",),
        paging=paging,
    )
    items = [
        GenerationOut(
            generation=row.number,
            weights={w.version.name: w.weight_bp for w in row.weights.all()},
            reason=row.reason,
            actor=row.actor,
            restored_from=row.restored_from,
            created_at=row.created_at,
        )
        for row in rows
    ]
    return GenerationPage(items=items, next=following)


@router.post(
    "/{name}/weights/restore",
    auth=needs(Scope.TRAFFIC),
    response=answers(200, WeightsOut, 404, 409, *WRITE),
)
def weights_restore(
    request: ApiRequest,
    name: str,
    body: Restore,
    response: HttpResponse,
    if_match: IfMatch = None,
) -> WeightsOut:
    """Bring an earlier generation back, whole, as a new one.

    A rollback must not wait for a second reading: without If-Match it is done
    whatever is in force now.
    """
    route = route_get(model=name)
    services.generation_restore(
        route=route,
        number=body.generation,
        generation=generation_seen(if_match, None if if_match else route.generation),
        actor=request.auth,
    )
    return _weights(name, response)
