from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Annotated

from django.http import Http404, HttpResponse
from django.utils.translation import gettext as _
from ninja import Body, Path, Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from cluster import services
from cluster.actor import Actor
from cluster.errors import Missing, Refused
from cluster.health import Admin, Cause, Label, State
from cluster.models import Driver, Node, Replica, Version
from cluster.selectors import (
    EngineView,
    engine_views,
    model_get,
    node_get,
    replica_get,
    replica_list,
    replica_views,
    version_get,
)
from console.accounts.grants import Scope
from console.api.auth import ApiRequest, needs
from console.api.etags import IfMatch, etag_check, etag_of
from console.api.paging import Paging, page
from console.api.shapes import ACT, WRITE, Input, Page, answers, choices, moment

router = Router(tags=["Replicas"])


class StateOut(BaseModel):
    """The state that the router sees. ``detail`` is the evidence in the words of
    whoever saw it, ``next_try`` when a failed start or an ejected replica is tried
    again. ``panic``: the route is short of replicas and uses doubtful ones.
    ``kept``: an ejection that is not carried out because too few would be left.
    ``trial``: one request at a time goes there to see. ``saturated``: the engine's own
    word. ``recovered_at``: since when it is given its share again, little by little."""

    label: str = Field(json_schema_extra=choices(Label))
    cause: str = Field(json_schema_extra=choices(Cause))
    eligible: bool
    since: datetime | None
    detail: str
    next_try: datetime | None
    panic: bool
    kept: bool
    trial: bool
    saturated: bool
    recovered_at: datetime | None


class EngineOut(BaseModel):
    """What the engine said of itself when it was last asked; null is unknown.

    ``models`` are the first of the ``model_count`` names that it lists;
    ``serves_name``: that of the version is among them. Not ``is_current``: it does not
    answer since. ``releases_differ``: other replicas of its version run on other
    releases of the engine."""

    release: str | None
    models: list[str] | None
    model_count: int | None
    serves_name: bool | None
    asked_at: datetime | None
    is_current: bool
    releases_differ: bool


class ReplicaOut(BaseModel):
    """``state`` is null while Redis does not answer; ``pid`` is the process on its
    node, null for a replica that Sluice does not run; ``engine`` is null until the
    engine was asked, which happens when it is up."""

    id: str
    model: str
    version: str
    number: int
    driver: str
    node: str | None
    address: str
    admin_state: str
    wanted_running: bool
    pid: int | None
    created_at: datetime
    state: StateOut | None
    engine: EngineOut | None


class ActOut(ReplicaOut):
    """``cut`` is how many open requests the action broke off, null when unknown."""

    cut: int | None


class RemoveOut(BaseModel):
    """``cut`` is how many open requests that broke off, null when unknown."""

    id: str
    cut: int | None


class ReplicaPage(Page[ReplicaOut]):
    pass


class ReplicaCreate(Input):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "qwen3-8b",
                    "version": "v1",
                    "driver": "static",
                    "address": "http://10.0.0.5:8000",
                }
            ]
        }
    )
    model: str
    version: str
    driver: str = Field(json_schema_extra=choices(Driver.values))
    address: str = Field("", description="For static: where it answers.")
    node: str | None = Field(None, description="For process: which node runs it.")


def state_out(state: State | None) -> StateOut | None:
    if state is None:
        return None
    return StateOut(
        label=state.label,
        cause=state.cause,
        eligible=state.eligible,
        since=moment(state.since),
        detail=state.detail,
        next_try=moment(state.next_try),
        panic=state.panic,
        kept=state.kept,
        trial=state.trial,
        saturated=state.saturated,
        recovered_at=moment(state.recovered_at),
    )


def _engine_out(view: EngineView) -> EngineOut | None:
    facts = view.facts
    if facts is None:
        return None
    return EngineOut(
        release=facts.release or None,
        models=None if facts.models is None else list(facts.models),
        model_count=None if facts.models is None else facts.model_count,
        serves_name=facts.serves_name,
        asked_at=moment(facts.at),
        is_current=facts.is_current,
        releases_differ=view.releases_differ,
    )


def replicas_out(rows: list[Replica]) -> list[ReplicaOut]:
    engines = engine_views(rows)
    return [
        ReplicaOut(
            id=row.id,
            model=row.version.model.name,
            version=row.version.name,
            number=row.number,
            driver=row.driver,
            node=row.node.name if row.node else None,
            address=row.address,
            admin_state=row.admin_state,
            wanted_running=row.wanted_running,
            pid=row.pid,
            created_at=row.created_at,
            state=state_out(view.state),
            engine=_engine_out(engines[row.id]),
        )
        for view in replica_views(rows)
        for row in [view.replica]
    ]


def replica_etag(row: Replica) -> str:
    return etag_of(row.id, row.admin_state, row.wanted_running, row.wanted_start)


def _answer(row: Replica, response: HttpResponse) -> ReplicaOut:
    response["ETag"] = f'"{replica_etag(row)}"'
    return replicas_out([row])[0]


ModelFilter = Annotated[str, Query("", description="Only replicas of this model.")]


@router.get("", response=answers(200, ReplicaPage, 422))
def replica_list_page(
    request: ApiRequest, paging: Query[Paging], model: ModelFilter = ""
) -> ReplicaPage:
    """Every replica with its state; removed ones are left out."""
    rows, following = page(
        request,
        replica_list(model=model),
        order=("version__model__name", "version_id", "number"),
        paging=paging,
        filters=("model",),
    )
    return ReplicaPage(items=replicas_out(rows), next=following)


@router.post("", auth=needs(Scope.FLEET), response=answers(201, ReplicaOut, *WRITE))
def replica_create(
    request: ApiRequest, body: ReplicaCreate, response: HttpResponse
) -> Status[ReplicaOut]:
    """A replica at a static address, or as a process that a node starts.

    Loopback and private addresses are normal; link-local ones are refused.
    """
    version, node = _parts(body)
    replica = services.replica_create(
        version=version,
        driver=body.driver,
        address=body.address,
        node=node,
        actor=request.auth,
    )
    response["Location"] = f"{request.path}/{replica.id}"
    return Status(201, _answer(replica_get(replica_id=replica.id), response))


def _parts(body: ReplicaCreate) -> tuple[Version, Node | None]:
    """What the body names. Here a missing one is a wrong field, not a wrong path."""
    try:
        version = version_get(model=model_get(name=body.model), name=body.version)
        node = None if body.node is None else node_get(name=body.node)
    except Missing as error:
        raise Refused(
            error.message, code=f"unknown_{error.field}", field=error.field
        ) from error
    return version, node


@router.get("/{replica_id}", response=answers(200, ReplicaOut, 404))
def replica_show(
    request: ApiRequest, replica_id: str, response: HttpResponse
) -> ReplicaOut:
    """One replica with its state."""
    return _answer(replica_get(replica_id=replica_id), response)


@router.delete(
    "/{replica_id}",
    auth=needs(Scope.FLEET),
    response=answers(200, RemoveOut, 404, 409, *ACT),
)
def replica_remove(
    request: ApiRequest, replica_id: str, if_match: IfMatch = None
) -> RemoveOut:
    """Take a replica out for good; its process is stopped, and requests that run on
    it break off. At a static replica they end in peace."""
    replica = _seen(replica_id, if_match)
    cut = services.replica_remove(replica=replica, actor=request.auth)
    return RemoveOut(id=replica.id, cut=cut)


def _seen(replica_id: str, if_match: str | None) -> Replica:
    replica = replica_get(replica_id=replica_id)
    etag_check(if_match, replica_etag(replica))
    return replica


class ActInput(Input):
    """What some actions may be told. ``then_stop`` and ``deadline_s`` go with drain,
    ``force`` with stop; told to another action they are refused."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"then_stop": True, "deadline_s": 300.0}]}
    )

    then_stop: bool | None = None
    deadline_s: float | None = None
    force: bool | None = None


def _start(replica: Replica, actor: Actor) -> services.RunningSet:
    return services.replica_running_set(replica=replica, running=True, actor=actor)


def _stop(
    replica: Replica, actor: Actor, *, force: bool = False
) -> services.RunningSet:
    return services.replica_running_set(
        replica=replica, running=False, force=force, actor=actor
    )


def _restart(replica: Replica, actor: Actor) -> services.RunningSet:
    return services.replica_restart(replica=replica, actor=actor)


def _drain(
    replica: Replica,
    actor: Actor,
    *,
    then_stop: bool = False,
    deadline_s: float = services.DRAIN_DEADLINE_S,
) -> services.RunningSet:
    return services.RunningSet(
        services.replica_drain(
            replica=replica, then_stop=then_stop, deadline_s=deadline_s, actor=actor
        ),
        0,
    )


def _admin(replica: Replica, actor: Actor, *, state: Admin) -> services.RunningSet:
    return services.RunningSet(
        services.replica_admin_set(replica=replica, state=state, actor=actor), 0
    )


_ACTIONS: dict[str, Callable[..., services.RunningSet]] = {
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "drain": _drain,
    "enable": partial(_admin, state=Admin.ENABLED),
    "disable": partial(_admin, state=Admin.DISABLED),
}
_NO_OPTIONS = ActInput()
_OPTIONS = {"stop": {"force"}, "drain": {"then_stop", "deadline_s"}}

Action = Annotated[str, Path(enum=list(_ACTIONS))]


@router.post(
    "/{replica_id}/{action}",
    auth=needs(Scope.FLEET),
    response=answers(200, ActOut, 404, 409, *WRITE),
)
def replica_act(
    request: ApiRequest,
    replica_id: str,
    action: Action,
    response: HttpResponse,
    options: Body[ActInput] = _NO_OPTIONS,
    if_match: IfMatch = None,
) -> ActOut:
    """Start, stop or restart its process (only where a node runs it); drain (no new
    requests, those under way end in peace), disable or enable it for the router.

    A stop waits for open requests unless told to ``force``; a drain may stop the
    process when it is empty (``then_stop``), or when ``deadline_s`` are over."""
    if action not in _ACTIONS:
        raise Http404
    told = options.model_dump(exclude_none=True)
    for name in told.keys() - _OPTIONS.get(action, set()):
        raise Refused(
            _("The action %(action)s takes no such option.") % {"action": action},
            code="unexpected",
            field=name,
        )
    done = _ACTIONS[action](_seen(replica_id, if_match), request.auth, **told)
    answer = _answer(done.replica, response)
    return ActOut(**answer.model_dump(), cut=done.cut)
