from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal, cast

from django.db import transaction
from django.http import HttpResponse
from ninja import Query, Router
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from console.accounts.grants import Scope
from console.api.auth import ApiRequest, needs
from console.api.etags import IfMatch, etag_check
from console.api.paging import Paging, query_check
from console.api.shapes import ACT, WRITE, Input, Page, answers, choices
from console.key_mark import key_etag
from console.key_paging import cursor_read, cursor_write
from routing import services
from routing.contracts.keys import SCOPES
from routing.models import ApiKey
from routing.selectors import KeyFind, KeyState, key_get, key_page, team_get
from routing.selectors.keys import QUERY_LENGTH
from routing.services.key_values import TAG_LENGTH, TAGS_MOST, KeyValues

router = Router(tags=["Teams and keys"])


def _utc(moment: datetime) -> datetime:
    """At the ends of the calendar, UTC may have no such moment."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("invalid", "There is no such time.") from None


Moment = Annotated[AwareDatetime, AfterValidator(_utc)]
KeyScope = Annotated[str, Field(json_schema_extra=choices(SCOPES))]


class KeyOut(BaseModel):
    """``models`` null means every model, ``expires_at`` null never. The secret is not
    stored and not shown: a key looks like ``sk-<id>…<last_four>``.

    ``last_used_at`` is the arrival of the last request on record, and
    ``last_used_from`` the address of its client.
    """

    id: str
    team: str
    name: str
    owner: str
    tags: list[str]
    last_four: str
    models: list[str] | None
    scopes: list[str]
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    last_used_from: str
    created_by: str
    created_at: datetime


class KeyPage(Page[KeyOut]):
    pass


class KeyIssued(KeyOut):
    """``secret`` is the key itself. Nobody can see it again."""

    secret: str = Field(examples=["sk-…"])


class KeyFields(Input):
    """What a key may be given."""

    owner: str = Field("", description="Who answers for it. At most 100 characters.")
    tags: list[str] = Field(
        [], description=f"At most {TAGS_MOST}, of at most {TAG_LENGTH} characters."
    )
    models: list[str] | None = Field(None, description="Null means every model.")
    scopes: list[KeyScope] = []

    def values(self) -> KeyValues:
        """What was sent, and nothing else."""
        sent = {name: getattr(self, name) for name in self.model_fields_set}
        return cast("KeyValues", sent)


class KeyCreate(KeyFields):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "nightly evaluation",
                    "owner": "evaluation crew",
                    "tags": ["batch"],
                    "models": ["qwen3-8b"],
                }
            ]
        }
    )
    name: str
    expires_at: Moment | None = Field(
        None,
        strict=False,
        description="With an offset, or Z. Left out: in 90 days. Null: never.",
    )


class KeyChange(KeyFields):
    """What is left out stays as it is. The key itself stays the same."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"owner": "support desk", "tags": ["chat"]}]}
    )
    name: str = Field("", description="At most 100 characters.")
    expires_at: Moment | None = Field(
        None, strict=False, description="With an offset, or Z. Null: never."
    )


class KeySearch(BaseModel):
    """``q`` looks in the key as lists show it (its beginning, its last four), its
    name, its owner, its tags (``#tag``), and the names of its team; every word must
    occur. ``expiring`` means within 14 days, in that order; other lists begin with
    the newest key."""

    q: str = Field("", max_length=QUERY_LENGTH)
    state: Literal["", "active", "expiring", "expired", "revoked", "unused"] = ""
    team: str = Field("", description="The slug of a team.")


def key_out(key: ApiKey) -> KeyOut:
    return KeyOut(
        id=key.id,
        team=key.team.slug,
        name=key.name,
        owner=key.owner,
        tags=key.tags,
        last_four=key.last_four,
        models=key.model_names,
        scopes=key.scopes,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=key.last_used_at,
        last_used_from=key.last_used_from,
        created_by=key.created_by,
        created_at=key.created_at,
    )


@router.get("", response=answers(200, KeyPage, 404, 422))
def key_search(
    request: ApiRequest, search: Query[KeySearch], paging: Query[Paging]
) -> KeyPage:
    """The keys of all teams, also by text and by state."""
    query_check(request, "limit", "cursor", *KeySearch.model_fields)
    find = KeyFind(
        search.q,
        KeyState(search.state) if search.state else None,
        team_get(slug=search.team) if search.team else None,
    )
    after = None if paging.cursor is None else cursor_read(find, paging.cursor)
    found = key_page(find=find, after=after, limit=paging.limit)
    following = found.following and cursor_write(find, found.following)
    return KeyPage(items=[key_out(row) for row in found.rows], next=following)


@router.get("/{key_id}", response=answers(200, KeyOut, 404))
def key_show(request: ApiRequest, key_id: str, response: HttpResponse) -> KeyOut:
    """One key, without its secret, with the ETag that a change needs."""
    key = key_get(key_id=key_id)
    response["ETag"] = f'"{key_etag(key)}"'
    return key_out(key)


@router.patch(
    "/{key_id}",
    auth=needs(Scope.KEYS),
    response=answers(200, KeyOut, 404, 409, 428, *WRITE),
)
def key_change(
    request: ApiRequest,
    key_id: str,
    body: KeyChange,
    response: HttpResponse,
    if_match: IfMatch = None,
) -> KeyOut:
    """Change a key without rotating it; gateways follow within two seconds. Needs
    If-Match."""
    with transaction.atomic():
        key = key_get(key_id=key_id, lock=True)
        request.grant.require(Scope.KEYS, team=key.team.slug)
        etag_check(if_match, key_etag(key), required=True)
        services.key_update(key=key, actor=request.auth, **body.values())
    response["ETag"] = f'"{key_etag(key)}"'
    return key_out(key)


@router.post(
    "/{key_id}/revoke", auth=needs(Scope.KEYS), response=answers(200, KeyOut, 404, *ACT)
)
def key_revoke(request: ApiRequest, key_id: str) -> KeyOut:
    """Refuse the key everywhere, within two seconds and for ever."""
    key = key_get(key_id=key_id)
    request.grant.require(Scope.KEYS, team=key.team.slug)
    return key_out(services.key_revoke(key=key, actor=request.auth))
