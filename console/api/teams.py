from __future__ import annotations

from datetime import datetime

from django.http import HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict

from console.accounts.grants import Scope
from console.api.auth import ApiRequest, needs
from console.api.keys import KeyCreate, KeyIssued, KeyPage, key_out
from console.api.paging import Paging, page
from console.api.shapes import ACT, WRITE, Input, Page, answers
from console.key_mark import key_etag
from routing import services
from routing.models import Team
from routing.selectors import team_get

router = Router(tags=["Teams and keys"])


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


def team_out(team: Team) -> TeamOut:
    return TeamOut.model_validate(team, from_attributes=True)


@router.get("", response=answers(200, TeamPage, 422))
def team_list(request: ApiRequest, paging: Query[Paging]) -> TeamPage:
    """Every team, by slug."""
    rows, following = page(request, Team.objects.all(), order=("slug",), paging=paging)
    return TeamPage(items=[team_out(row) for row in rows], next=following)


@router.post("", auth=needs(Scope.TEAMS), response=answers(201, TeamOut, *WRITE))
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


@router.post(
    "/{slug}/disable",
    auth=needs(Scope.TEAMS),
    response=answers(200, TeamOut, 404, *ACT),
)
def team_disable(request: ApiRequest, slug: str) -> TeamOut:
    """Refuse every key of the team, within two seconds."""
    team = team_get(slug=slug)
    services.team_enabled_set(team=team, enabled=False, actor=request.auth)
    return team_out(team)


@router.post(
    "/{slug}/enable", auth=needs(Scope.TEAMS), response=answers(200, TeamOut, 404, *ACT)
)
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


@router.post(
    "/{slug}/keys",
    auth=needs(Scope.KEYS),
    response=answers(201, KeyIssued, 404, *WRITE),
)
def key_issue(
    request: ApiRequest, slug: str, body: KeyCreate, response: HttpResponse
) -> Status[KeyIssued]:
    """A new key. The answer holds its secret, this once."""
    team = team_get(slug=slug)
    request.grant.require(Scope.KEYS, team=team.slug)
    key, secret = services.key_issue(team=team, actor=request.auth, **body.values())
    root = request.path.removesuffix(f"/teams/{slug}/keys")
    response["Location"] = f"{root}/keys/{key.id}"
    response["ETag"] = f'"{key_etag(key)}"'
    return Status(201, KeyIssued(secret=secret, **key_out(key).model_dump()))
