from __future__ import annotations

from datetime import datetime

from django.http import HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from console.accounts import users as people
from console.accounts.grants import Role, Scope
from console.accounts.models import User
from console.api.auth import ApiRequest, needs
from console.api.paging import Paging, page
from console.api.shapes import ACT, WRITE, Input, Page, answers, choices

router = Router(tags=["Users and tokens"])


class UserOut(BaseModel):
    """``leads`` are the teams whose keys the person manages, whatever the role."""

    username: str
    role: str = Field(json_schema_extra=choices(Role))
    leads: list[str]
    active: bool
    last_login: datetime | None


class UserPage(Page[UserOut]):
    pass


class UserCreate(Input):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"username": "ada", "role": "viewer"}]}
    )
    username: str
    role: str = Field(Role.VIEWER.value, json_schema_extra=choices(Role))
    leads: list[str] = []


class UserAdded(UserOut):
    """``password`` is in this answer and nowhere else."""

    password: str


def user_out(user: User) -> UserOut:
    return UserOut(
        username=user.username,
        role=user.role,
        leads=sorted(team.slug for team in user.leads.all()),
        active=user.is_active,
        last_login=user.last_login,
    )


@router.get("", auth=needs(Scope.ACCOUNTS), response=answers(200, UserPage, 403, 422))
def user_list(request: ApiRequest, paging: Query[Paging]) -> UserPage:
    """Every person, by name."""
    rows, following = page(
        request,
        User.objects.prefetch_related("leads"),
        order=("username",),
        paging=paging,
    )
    return UserPage(items=[user_out(row) for row in rows], next=following)


@router.post("", auth=needs(Scope.ACCOUNTS), response=answers(201, UserAdded, *WRITE))
def user_create(
    request: ApiRequest, body: UserCreate, response: HttpResponse
) -> Status[UserAdded]:
    """A new person. The answer holds the first password, this once."""
    user, password = people.user_add(
        username=body.username, role=body.role, leads=body.leads, actor=request.auth
    )
    return Status(201, UserAdded(password=password, **user_out(user).model_dump()))


@router.post(
    "/{username}/deactivate",
    auth=needs(Scope.ACCOUNTS),
    response=answers(200, UserOut, 404, 422, *ACT),
)
def user_deactivate(request: ApiRequest, username: str) -> UserOut:
    """Log the person out everywhere and refuse their tokens; never the last admin."""
    return user_out(
        people.user_active_set(username=username, active=False, actor=request.auth)
    )


@router.post(
    "/{username}/activate",
    auth=needs(Scope.ACCOUNTS),
    response=answers(200, UserOut, 404, *ACT),
)
def user_activate(request: ApiRequest, username: str) -> UserOut:
    """Let the person log in again."""
    return user_out(
        people.user_active_set(username=username, active=True, actor=request.auth)
    )
