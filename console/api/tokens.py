from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext as _
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from cluster.errors import Missing
from console.accounts.grants import Scope
from console.accounts.models import AccessToken
from console.accounts.services import token_issue as issue
from console.accounts.services import token_revoke as revoke
from console.api.auth import ApiRequest, needs
from console.api.paging import Paging, page
from console.api.shapes import ACT, WRITE, Input, Page, answers

router = Router(tags=["Users and tokens"])


class TokenOut(BaseModel):
    """``scopes`` of null is all that the role of its user may."""

    id: int
    user: str
    name: str
    scopes: list[str] | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    last_used_from: str
    revoked_at: datetime | None


class TokenPage(Page[TokenOut]):
    pass


class TokenCreate(Input):
    """The scopes are the caller's own at most. ``expires_in_days`` of null is never."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "nightly-export", "scopes": ["read"]}]}
    )
    name: str
    scopes: list[str]
    expires_in_days: int | None = Field(90, ge=1, le=3650)


class TokenIssued(TokenOut):
    """``secret`` is in this answer and nowhere else."""

    secret: str


def token_out(token: AccessToken) -> TokenOut:
    names = set(TokenOut.model_fields) - {"user"}
    values = {name: getattr(token, name) for name in names}
    return TokenOut(user=token.user.username, **values)


@router.get("", response=answers(200, TokenPage, 422))
def token_list(request: ApiRequest, paging: Query[Paging]) -> TokenPage:
    """The caller's own tokens, newest first; everybody's with the scope accounts."""
    tokens = AccessToken.objects.select_related("user")
    if not request.grant.allows(Scope.ACCOUNTS):
        tokens = tokens.filter(user=request.person)
    rows, following = page(request, tokens, order=("-created_at", "id"), paging=paging)
    return TokenPage(items=[token_out(row) for row in rows], next=following)


@router.post("", auth=needs(Scope.ACCOUNTS), response=answers(201, TokenIssued, *WRITE))
def token_issue(request: ApiRequest, body: TokenCreate) -> Status[TokenIssued]:
    """A token that acts as the caller. Needs the scope accounts, so that no other
    token outlives itself by issuing a second; people issue theirs on their profile."""
    for name in body.scopes:
        if name in {scope.value for scope in Scope}:
            request.grant.require(Scope(name))
    days = body.expires_in_days
    token, secret = issue(
        user=request.person,
        name=body.name,
        scopes=body.scopes,
        expires_at=None if days is None else timezone.now() + timedelta(days=days),
        actor=request.auth,
    )
    return Status(201, TokenIssued(secret=secret, **token_out(token).model_dump()))


@router.post(
    "/{int:token_id}/revoke",
    auth=needs(Scope.ACCOUNTS),
    response=answers(200, TokenOut, 404, *ACT),
)
def token_revoke(request: ApiRequest, token_id: int) -> TokenOut:
    """Refuse the token from now on."""
    found = AccessToken.objects.select_related("user").filter(pk=token_id).first()
    if found is None:
        raise Missing(_("There is no such token."))
    return token_out(revoke(token=found, actor=request.auth))
