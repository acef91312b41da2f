from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from ninja import Query, Router
from pydantic import AwareDatetime, BaseModel, Field

from cluster.errors import Missing
from cluster.models import AuditRecord
from cluster.selectors.audit import AuditFind, audit_find
from console.accounts.grants import Scope
from console.api.auth import ApiRequest, needs
from console.api.paging import Paging, page
from console.api.shapes import Page, answers

router = Router(tags=["Audit"])


class AuditAsked(BaseModel):
    actor: str = Field("", max_length=200, description="Who did it, by name.")
    action: str = Field(
        "", max_length=200, description="As key.revoke, or the kind alone: key."
    )
    target: str = Field("", max_length=200, description="The object, by name.")
    text: str = Field(
        "", max_length=200, description="Anywhere in actor, action, target, address."
    )
    since: AwareDatetime | None = Field(
        None, alias="from", description="From this instant on."
    )
    until: AwareDatetime | None = Field(
        None, alias="to", description="Before this instant."
    )


class AuditOut(BaseModel):
    """``before`` and ``after`` hold what the change changed; null where it was not
    there."""

    id: int
    at: datetime
    actor_kind: str
    actor_name: str
    actor_address: str
    action: str
    target: str
    before: Any
    after: Any


class AuditPage(Page[AuditOut]):
    pass


def audit_out(record: AuditRecord) -> AuditOut:
    return AuditOut.model_validate(record, from_attributes=True)


@router.get("", auth=needs(Scope.AUDIT), response=answers(200, AuditPage, 403, 422))
def audit_search(
    request: ApiRequest, paging: Query[Paging], asked: Query[AuditAsked]
) -> AuditPage:
    """Every change, newest first."""
    rows, following = page(
        request,
        audit_find(AuditFind(**asked.model_dump())),
        order=("-id",),
        paging=paging,
        filters=("actor", "action", "target", "text", "from", "to"),
    )
    return AuditPage(items=[audit_out(row) for row in rows], next=following)


@router.get(
    "/{record_id}", auth=needs(Scope.AUDIT), response=answers(200, AuditOut, 403, 404)
)
def audit_show(request: ApiRequest, record_id: int) -> AuditOut:
    """One change."""
    record = AuditRecord.objects.filter(pk=record_id).first()
    if record is None:
        raise Missing(_("There is no such record."), field="record_id")
    return audit_out(record)
