from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from django.http import HttpResponse
from ninja import Query, Router, Status
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from console.api.auth import ApiRequest
from console.api.paging import Paging, page
from console.api.shapes import ACT, WRITE, Input, Page, answers, choices
from routing import services
from routing.contracts.keys import SCOPES
from routing.models import ApiKey, Team
from routing.selectors import key_get, team_get

router = Router(tags=["Teams and keys"])
keys_router = Router(tags=["Teams and keys"])


class TeamOut(BaseModel):
    """While ``disabled_at`` is set, no key of the team works."""

    slug: str
    name: str
    disabled_at: datetime | None
    created_at: datetime


class TeamPage(Page[TeamOut]):
    pass


class TeamCreate(Input):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"slug": "search", "name": "Search"}]}
    )
    slug: str
    name: str = ""


class KeyOut(BaseModel):
    """``models`` null means every model. The secret is not stored and not shown."""

    id: str
    team: str
    name: str
    last_four: str
    models: list[str] | None
    scopes: list[str]
    expires_at: datetime | None
    revoked_at: datetime | None
    created_by: str
    created_at: datetime


class KeyPage(Page[KeyOut]):
    pass


class KeyIssued(KeyOut):
    """``secret`` is the key itself. Nobody can see it again."""

    secret: str = Field(examples=["sk-…"])


def _utc(moment: datetime) -> datetime:
    """At the ends of the calendar, UTC may have no such moment."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("invalid", "There is no such time.") from None


class KeyCreate(Input):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "nightly evaluation", "models": ["qwen3-8b"]}]
        }
    )
    name: str
    models: list[str] | None = Field(None, description="Null means every model.")
    scopes: list[Annotated[str, Field(json_schema_extra=choices(SCOPES))]] = []
    expires_at: Annotated[AwareDatetime, AfterValidator(_utc)] | None = Field(
        None, strict=False, description="With an offset, or Z."
    )


def team_out(team: Team) -> TeamOut:
    return TeamOut.model_validate(team, from_attributes=True)


def key_out(key: ApiKey) -> KeyOut:
    return KeyOut(
        id=key.id,
        team=key.team.slug,
        name=key.name,
        last_four=key.last_four,
        models=key.model_names,
        scopes=key.scopes,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        created_by=key.created_by,
        created_at=key.created_at,
    )


@router.get("", response=answers(200, TeamPage, 422))
def team_list(request: ApiRequest, paging: Query[Paging]) -> TeamPage:
    """Every team, by slug."""
    rows, following = page(request, Team.objects.all(), order=("slug",), paging=paging)
    return TeamPage(items=[team_out(row) for row in rows], next=following)


@router.post("", response=answers(201, TeamOut, *WRITE))
def team_create(
    request: ApiRequest, body: TeamCreate, response: HttpResponse
) -> Status[TeamOut]:
    """A team without keys."""
    team = services.team_create(slug=body.slug, name=body.name, actor=request.auth)
    response["Location"] = f"{request.path}/{team.slug}"
    return Status(201, team_out(team))


@router.get("/{slug}", response=answers(200, TeamOut, 404))
def team_show(request: ApiRequest, slug: str) -> TeamOut:
    """One team."""
    return team_out(team_get(slug=slug))


@router.post("/{slug}/disable", response=answers(200, TeamOut, 404, *ACT))
def team_disable(request: ApiRequest, slug: str) -> TeamOut:
    """Refuse every key of the team, within two seconds."""
    team = team_get(slug=slug)
    services.team_enabled_set(team=team, enabled=False, actor=request.auth)
    return team_out(team)


@router.post("/{slug}/enable", response=answers(200, TeamOut, 404, *ACT))
def team_enable(request: ApiRequest, slug: str) -> TeamOut:
    """Let the keys of the team work again; revoked ones stay revoked."""
    team = team_get(slug=slug)
    services.team_enabled_set(team=team, enabled=True, actor=request.auth)
    return team_out(team)


@router.get("/{slug}/keys", response=answers(200, KeyPage, 404, 422))
def key_list(request: ApiRequest, slug: str, paging: Query[Paging]) -> KeyPage:
    """The keys of the team, newest first, revoked ones too."""
    rows, following = page(
        request,
        team_get(slug=slug).keys.select_related("team"),
        order=("-created_at", "id"),
        paging=paging,
    )
    return KeyPage(items=[key_out(row) for row in rows], next=following)


@router.post("/{slug}/keys", response=answers(201, KeyIssued, 404, *WRITE))
def key_issue(
    request: ApiRequest, slug: str, body: KeyCreate, response: HttpResponse
) -> Status[KeyIssued]:
    """A new key. The answer holds its secret, this once."""
    key, secret = services.key_issue(
        team=team_get(slug=slug),
        name=body.name,
        models=body.models,
        scopes=body.scopes,
        expires_at=body.expires_at,
        actor=request.auth,
    )
    root = request.path.removesuffix(f"/teams/{slug}/keys")
    response["Location"] = f"{root}/keys/{key.id}"
    return Status(201, KeyIssued(secret=secret, **key_out(key).model_dump()))


@keys_router.get("/{key_id}", response=answers(200, KeyOut, 404))
def key_show(request: ApiRequest, key_id: str) -> KeyOut:
    """One key, without its secret."""
    return key_out(key_get(key_id=key_id))


@keys_router.post("/{key_id}/revoke", response=answers(200, KeyOut, 404, *ACT))
def key_revoke(request: ApiRequest, key_id: str) -> KeyOut:
    """Refuse the key everywhere, within two seconds and for ever."""
    key = services.key_revoke(key=key_get(key_id=key_id), actor=request.auth)
    return key_out(key)
