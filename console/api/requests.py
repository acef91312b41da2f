"""Outcomes of requests, and usage: what the pages of the same name show."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from django.utils import timezone
from django.utils.translation import gettext as _
from ninja import Query, Router
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from cluster.errors import Missing, Refused
from console.api.auth import ApiRequest
from console.api.paging import (
    Paging,
    cursor_read,
    cursor_write,
    page_of_groups,
    query_check,
)
from console.api.shapes import Page, answers, choices
from console.outcome_query import request_id_read, status_read
from console.outcome_words import verdict
from console.waterfall import phases
from routing.contracts.outcome import Ending, Outcome
from routing.models import OutcomeRecord
from routing.selectors.outcomes import (
    OutcomeFilter,
    id_moment,
    outcome_get,
    outcome_list,
    outcome_read,
)
from routing.selectors.usage import (
    FIGURES,
    GROUPS,
    UsageFilter,
    usage_row,
    usage_rows,
)
from routing.selectors.whereabouts import Whereabouts, outcome_whereabouts

router = Router(tags=["Requests"])
usage_router = Router(tags=["Usage"])

_FILTERS = (
    *("since", "until", "team", "key", "model", "version", "replica"),
    *("status", "ending", "slow"),
)
_EXAMPLE: dict[str, Any] = {
    "id": "019ad6c3a1f0b7e4d2c85a96f3017e4c",
    "at": "2026-11-30T12:00:00.016Z",
    "gateway": "gw-5f3c1d9a7b20",
    "team": "search",
    "key": "q7ZrT2mXw9Ab",
    "model": "qwen3-8b",
    "generation": 12,
    "first_version": "v2",
    "version": "v2",
    "replica": "qwen3-8b-v2-1",
    "status": 200,
    "ending": "completed",
    "code": "",
    "slow": False,
    "attempts": 1,
    "duration_ms": 1250.4,
    "first_content_ms": 210.2,
    "prompt_tokens": 412,
    "completion_tokens": 96,
}


def _in_range(moment: datetime) -> datetime:
    """At the ends of the calendar, UTC may have no such moment."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("invalid", "There is no such time.") from None


def _text(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("invalid", "Nothing can have this name.")
    return value


def _status(value: str) -> str:
    try:
        status_read(value)
    except ValueError:
        raise PydanticCustomError(
            "invalid", "Write a status such as 503, or a class such as 5xx."
        ) from None
    return value


Moment = Annotated[AwareDatetime, AfterValidator(_in_range)]
Name = Annotated[str, AfterValidator(_text)]


class OutcomeAsked(BaseModel):
    since: Moment | None = Field(None, description="Arrived then or later.")
    until: Moment | None = Field(None, description="Arrived before.")
    team: Name = Field("", max_length=220)
    key: Name = Field("", max_length=220, description="The public id of a key.")
    model: Name = Field("", max_length=220)
    version: Name = Field("", max_length=220)
    replica: Name = Field("", max_length=220)
    status: Annotated[str, AfterValidator(_status)] | None = Field(
        None, description="One status, or a class.", examples=["503", "5xx"]
    )
    ending: Ending | None = Field(None)
    slow: bool = Field(False, description="Only what was slow for its kind.")

    def wanted(self) -> OutcomeFilter:
        return OutcomeFilter(
            since=self.since,
            until=self.until,
            team=self.team,
            key=self.key,
            model=self.model,
            version=self.version,
            replica=self.replica,
            status=None if self.status is None else status_read(self.status),
            ending=self.ending or "",
            slow=self.slow,
        )


class OutcomeOut(BaseModel):
    """How one request ended. Empty texts: it did not come so far. ``key`` is the
    public id. Tokens are null when no replica was reached."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})
    id: str
    at: datetime
    gateway: str
    team: str
    key: str
    model: str
    generation: int
    first_version: str = Field(description="What was drawn, or chosen by the client.")
    version: str = Field(description="What served in the end.")
    replica: str
    status: int
    ending: Annotated[str, Field(json_schema_extra=choices(Ending))]
    code: str = Field(description="The error code of the gateway.")
    slow: bool
    attempts: int
    duration_ms: float
    first_content_ms: float | None
    prompt_tokens: int | None
    completion_tokens: int | None


class OutcomePage(Page[OutcomeOut]):
    """Newest first. A search among many rows ends early: then the page has fewer rows
    than asked for, maybe none, and ``searched_to`` is the time down to which all was
    looked at; ``next`` goes on there."""

    searched_to: datetime | None


class PhaseOut(BaseModel):
    """``kind`` is receive, key, routing, queue, connect, wait, prefill, decode,
    delivery, or gap for what nobody accounts for. ``attempt`` counts from 1."""

    kind: str
    start_ms: float
    end_ms: float
    attempt: int


class OutcomeWhole(OutcomeOut):
    """``phases`` follow each other without overlap from 0 to ``duration_ms``.
    ``outcome`` is the record as the gateway wrote it, with every attempt, why its
    replica was chosen, and every moment; null when another release wrote it."""

    verdict: str = Field(description="The story in a sentence.")
    phases: list[PhaseOut]
    outcome: dict[str, Any] | None


def _members(row: OutcomeRecord) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _EXAMPLE if name != "id"} | {
        "id": row.pk.hex
    }


@router.get("", response=answers(200, OutcomePage, 422))
def request_list(
    request: ApiRequest, paging: Query[Paging], asked: Query[OutcomeAsked]
) -> OutcomePage:
    """Outcomes of requests, newest first, over all that is kept."""
    query_check(request, "limit", "cursor", *_FILTERS)
    before: UUID | None = None
    if paging.cursor is not None:
        before = UUID(str(cursor_read(request, paging.cursor, 1)[0]))
    found = outcome_list(wanted=asked.wanted(), limit=paging.limit, before=before)
    last = found.reached or (found.rows[-1].pk if found.rows else None)
    more = found.more and last is not None
    return OutcomePage(
        items=[OutcomeOut(**_members(row)) for row in found.rows],
        next=cursor_write(request, [str(last)]) if more else None,
        searched_to=id_moment(found.reached) if found.reached else None,
    )


@router.get("/{request_id}", response=answers(200, OutcomeWhole, 404))
def request_read(request: ApiRequest, request_id: str) -> OutcomeWhole:
    """One outcome by the id of the header x-request-id, over all that is kept."""
    found = request_id_read(request_id)
    if found is None:
        raise Missing(
            _("A request id has 32 hexadecimal digits: see x-request-id."),
            field="request_id",
        )
    row = outcome_get(request_id=found)
    if row is None:
        known = outcome_whereabouts(request_id=found)
        raise Missing(_missing(known), field="request_id")
    outcome = outcome_read(row)
    return OutcomeWhole(
        **_members(row),
        verdict=_story(outcome) if outcome else "",
        phases=[
            PhaseOut(
                kind=phase.kind,
                start_ms=phase.start_ms,
                end_ms=phase.end_ms,
                attempt=phase.attempt,
            )
            for phase in (phases(outcome) if outcome else [])
        ],
        outcome=msgspec.to_builtins(outcome) if outcome else None,
    )


def _story(outcome: Outcome) -> str:
    mark = verdict(outcome)
    return f"{mark.word}. {mark.sentence}"


def _missing(known: Whereabouts) -> str:
    """What is known of a request without an outcome, in one line."""
    told = [_("There is no outcome of this request.")]
    if known.open_at:
        told.append(_("It is still open at %(id)s.") % {"id": known.open_at})
    elif known.oldest and known.arrived_at and known.arrived_at < known.oldest:
        told.append(_("It is older than everything that is kept."))
    if known.lost:
        told.append(_("Outcomes lost since then: %(n)d.") % {"n": known.lost})
    return " ".join(told)


class UsageAsked(BaseModel):
    first: date | None = Field(
        None, alias="from", description="The first day, by default 29 days ago."
    )
    last: date | None = Field(
        None, alias="to", description="The last day, included; by default today."
    )
    group: str = Field(
        "day",
        description="Columns to group by: day, team, key, model, version; with commas.",
        examples=["team,day"],
    )
    team: Name = Field("", max_length=220)
    key: Name = Field("", max_length=220)
    model: Name = Field("", max_length=220)
    version: Name = Field("", max_length=220)


class UsageOut(BaseModel):
    """Sums over one group; of the five columns only those asked for are not null.
    ``errors`` are requests that were refused, failed, timed out or broke off;
    ``estimated`` those whose tokens the engine did not count."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"day": "2026-11-30", "team": "search"}
                | dict.fromkeys(("key", "model", "version"))
                | dict(
                    zip(
                        FIGURES,
                        (9120, 14, 31, 3_801_444, 921_300, 1_204_224, 12)
                        + (21_400_100, 88_301_122),
                        strict=True,
                    )
                )
            ]
        }
    )
    day: date | None
    team: str | None
    key: str | None
    model: str | None
    version: str | None
    requests: int
    errors: int
    retries: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    estimated: int
    bytes_in: int
    bytes_out: int


class UsagePage(Page[UsageOut]):
    """Sorted by the columns of the group. ``zone`` is that of the days."""

    zone: str


@usage_router.get("", response=answers(200, UsagePage, 422))
def usage_list(
    request: ApiRequest, paging: Query[Paging], asked: Query[UsageAsked]
) -> UsagePage:
    """Exact sums of what was used, per day of the console's zone, team, key, model or
    version. The sums of the groups are the sum of everything."""
    group = _group(asked.group)
    rows, following = page_of_groups(
        request,
        usage_rows(wanted=_span(asked), group=group),
        order=group,
        paging=paging,
        filters=("from", "to", "group", "team", "key", "model", "version"),
    )
    return UsagePage(
        items=[_usage_out(row, group) for row in rows],
        next=following,
        zone=timezone.get_default_timezone_name(),
    )


def _group(text: str) -> tuple[str, ...]:
    wanted = text.split(",")
    if not set(wanted) <= set(GROUPS):
        raise Refused(
            _("Group by %(columns)s, with commas between them.")
            % {"columns": ", ".join(GROUPS)},
            code="invalid",
            field="group",
        )
    return tuple(name for name in GROUPS if name in wanted)


def _span(asked: UsageAsked) -> UsageFilter:
    today = timezone.localdate(timezone=timezone.get_default_timezone())
    last = asked.last or today
    month = date.fromordinal(max(last.toordinal() - 29, 1))
    first = asked.first or month
    if first > last:
        raise Refused(
            _("The first day lies behind the last one."), code="invalid", field="from"
        )
    return UsageFilter(
        first=first,
        last=last,
        team=asked.team,
        key=asked.key,
        model=asked.model,
        version=asked.version,
    )


def _usage_out(row: dict[str, Any], group: tuple[str, ...]) -> UsageOut:
    used = usage_row(row, group).used
    members: dict[str, Any] = dict.fromkeys(GROUPS)
    members |= {name: row[name] for name in group}
    return UsageOut(**members, **{name: getattr(used, name) for name in FIGURES})
