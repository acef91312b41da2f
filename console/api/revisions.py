from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from ninja import Query, Router
from pydantic import BaseModel, Field

from console.api.auth import ApiRequest
from console.api.paging import Paging, page, page_of_values
from console.api.shapes import Page, answers, moment
from routing.contracts.gateway import GatewayRecord
from routing.models import Revision
from routing.selectors import (
    gateway_list,
    revision_acks,
    revision_get,
    revision_list,
    revisions_acknowledged,
)

router = Router(tags=["Revisions"])
gateways_router = Router(tags=["Gateways"])


class RevisionOut(BaseModel):
    """``acknowledged`` is by how many gateway processes it was ever applied, null
    while Redis does not answer; the marks are kept for seven days."""

    number: int
    epoch: int
    digest: str
    reason: str
    actor: str
    created_at: datetime
    acknowledged: int | None


class RevisionPage(Page[RevisionOut]):
    pass


class Acknowledgement(BaseModel):
    gateway: str
    at: datetime | None


class RevisionWhole(RevisionOut):
    """With the published body, as the gateways read it."""

    acknowledgements: list[Acknowledgement] | None
    snapshot: dict[str, Any]


class GatewayOut(BaseModel):
    """One live gateway process and what it serves by."""

    id: str
    host: str
    pid: int
    started_at: datetime | None
    epoch: int
    revision: int
    applied_at: datetime | None
    age_s: float = Field(description="Seconds since it applied the revision.")
    in_flight: int
    draining: bool


class GatewayPage(Page[GatewayOut]):
    pass


def _members(row: Revision, acknowledged: int | None) -> dict[str, Any]:
    return {
        "number": row.number,
        "epoch": row.epoch,
        "digest": row.digest,
        "reason": row.reason,
        "actor": row.actor,
        "created_at": row.created_at,
        "acknowledged": acknowledged,
    }


@router.get("", response=answers(200, RevisionPage, 422))
def revision_list_page(request: ApiRequest, paging: Query[Paging]) -> RevisionPage:
    """Published snapshots of all routes, newest first."""
    rows, following = page(request, revision_list(), order=("-number",), paging=paging)
    counts = revisions_acknowledged(rows)
    items = [RevisionOut(**_members(row, counts.get(row.number))) for row in rows]
    return RevisionPage(items=items, next=following)


@router.get("/{int:number}", response=answers(200, RevisionWhole, 404))
def revision_show(request: ApiRequest, number: int) -> RevisionWhole:
    """One published snapshot, whole, with who acknowledged it and when."""
    row = revision_get(number=number)
    acks = revision_acks(row)
    return RevisionWhole(
        **_members(row, None if acks is None else len(acks)),
        acknowledgements=_acknowledgements(acks),
        snapshot=json.loads(bytes(row.body)),
    )


def _acknowledgements(acks: dict[str, float] | None) -> list[Acknowledgement] | None:
    if acks is None:
        return None
    return [Acknowledgement(gateway=name, at=moment(at)) for name, at in acks.items()]


@gateways_router.get("", response=answers(200, GatewayPage, 422))
def gateway_list_page(request: ApiRequest, paging: Query[Paging]) -> GatewayPage:
    """The live gateway processes, oldest first."""
    records, following = page_of_values(
        request,
        gateway_list(),
        key=lambda record: [record.started_at, record.id],
        paging=paging,
    )
    now = time.time()
    items = [_gateway_out(record, now) for record in records]
    return GatewayPage(items=items, next=following)


def _gateway_out(record: GatewayRecord, now: float) -> GatewayOut:
    return GatewayOut(
        id=record.id,
        host=record.host,
        pid=record.pid,
        started_at=moment(record.started_at),
        epoch=record.epoch,
        revision=record.revision,
        applied_at=moment(record.applied_at),
        age_s=round(max(0.0, now - record.applied_at), 3),
        in_flight=record.in_flight,
        draining=record.draining,
    )
