"""Requests: the list with its filters, and one with all that is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from cluster.models import Model, Replica
from cluster.selectors.past import replicas_at
from console.outcome_query import (
    NAMES,
    Asked,
    asked_read,
    before_read,
    request_id_read,
)
from console.outcome_words import (
    ENDINGS,
    attempt_views,
    code_sentence,
    draw_sentence,
    ending_mark,
    kind_word,
    verdict,
)
from console.pages import is_poll
from console.status import Mark, transition_mark
from console.time_range import time_control, zone_of
from console.waterfall import phases, ticks
from routing.contracts.outcome import Outcome
from routing.models import ApiKey, OutcomeRecord, Team
from routing.selectors.keys import key_names
from routing.selectors.outcomes import (
    Found,
    id_moment,
    outcome_get,
    outcome_list,
    outcome_oldest,
    outcome_read,
)
from routing.selectors.whereabouts import outcome_whereabouts

_ROWS = 50
# More suggestions than this help nobody.
_SUGGESTIONS = 200
_STATUSES = (
    "2xx",
    "4xx",
    "5xx",
    "400",
    "401",
    "404",
    "429",
    "499",
    "502",
    "503",
    "504",
)
# Asked for more rarely: the form opens for them when one is in force.
_FURTHER = ("key", "version", "replica")
# A request that arrived so lately may still be open or on its way.
_YOUNG = timedelta(minutes=15)
_DECODE_LEAST_MS = 50.0
# No attempt begins later than this after the arrival, whatever an outcome says.
_DAY_MS = 86_400_000.0


@dataclass(frozen=True)
class Row:
    """``outcome`` is None when the row was written by another release; ``key`` is the
    key's name, empty where it is gone."""

    record: OutcomeRecord
    outcome: Outcome | None
    mark: Mark
    key: str


@require_safe
def request_rows(request: HttpRequest) -> HttpResponse:
    """The list. ``?find=`` looks for an id over all time; a poll gets the rows only."""
    problems: list[str] = []
    if text := request.GET.get("find", "").strip():
        if request_id := request_id_read(text):
            return redirect("request", request_id=request_id.hex)
        problems.append(_("A request id has 32 hexadecimal digits: see x-request-id."))
    asked = asked_read(request.GET, zone=zone_of(request.user))
    before, after = (before_read(request.GET, name) for name in ("before", "after"))
    found = outcome_list(wanted=asked.wanted, limit=_ROWS, before=before, after=after)
    if after is not None and not found.more:
        # The newest page is the first one, which goes on by itself.
        return redirect(f"{request.path}?{asked.query()}")
    context = _page(asked, found, before, after)
    if is_poll(request):
        return render(request, "requests/rows.html", context)
    context |= _controls(asked) | {
        "find": text,
        "problems": problems + asked.problems,
        "oldest": outcome_oldest(),
        "control": time_control(
            asked.range,
            {n: v for n, v in asked.given.items() if n not in asked.range.given},
            own_zone=zone_of(request.user),
            all_words=_("all that is kept"),
        ),
    }
    return render(request, "requests/list.html", context)


def _page(
    asked: Asked, found: Found, before: UUID | None, after: UUID | None
) -> dict[str, Any]:
    below = found.rows[-1].pk if found.rows else after
    above = found.rows[0].pk if found.rows else before
    first_page = before is None and after is None
    if after is None:
        older = (found.reached or below) if found.more else None
        newer = above
    else:
        older = below
        newer = found.reached or above
    keys = key_names(ids={record.key for record in found.rows if record.key})
    return {
        "asked": asked,
        "rows": [_row(record, keys.get(record.key, "")) for record in found.rows],
        "is_first_page": first_page,
        "reached": id_moment(found.reached) if found.reached and not after else None,
        "older": asked.query(before=older.hex) if older else "",
        "newer": asked.query(after=newer.hex) if newer and not first_page else "",
        "newest": asked.query(),
        "any": bool(found.rows) or OutcomeRecord.objects.exists(),
    }


def _row(record: OutcomeRecord, key: str) -> Row:
    return Row(record, outcome_read(record), ending_mark(record.ending), key)


def _controls(asked: Asked) -> dict[str, Any]:
    """What the filters offer to choose from."""
    replicas = Replica.objects.filter(removed_at__isnull=True).order_by("pk")
    suggestions = {
        "team": Team.objects.values_list("slug", flat=True)[:_SUGGESTIONS],
        "model": Model.objects.values_list("name", flat=True)[:_SUGGESTIONS],
        "replica": replicas.values_list("pk", flat=True)[:_SUGGESTIONS],
    }
    return {
        "endings": [(name, words) for name, (_token, words) in ENDINGS.items()],
        "statuses": _STATUSES,
        "fields": [
            {
                "name": name,
                "label": label,
                "value": asked.given.get(name, ""),
                "listed": name in suggestions,
                "further": name in _FURTHER,
            }
            for name, label in NAMES.items()
        ],
        "further": not asked.given.keys().isdisjoint(_FURTHER),
        "suggestions": suggestions,
    }


@require_safe
def request_show(request: HttpRequest, request_id: str) -> HttpResponse:
    """One request. Of one that is not there, what is known; that asks again by itself
    while the request is young."""
    found = request_id_read(request_id)
    record = outcome_get(request_id=found) if found else None
    if record is None:
        return _missing(request, request_id, found)
    if is_poll(request):
        return HttpResponseClientRefresh()
    outcome = outcome_read(record)
    context: dict[str, Any] = {"record": record, "id": record.pk.hex}
    if outcome is None:
        return render(request, "requests/foreign.html", context)
    context |= {
        "outcome": outcome,
        "verdict": verdict(outcome),
        "code_words": code_sentence(outcome.code),
        "draw": draw_sentence(outcome),
        "attempts": attempt_views(outcome),
        "phases": [(phase, kind_word(phase.kind)) for phase in phases(outcome)],
        "ticks": ticks(outcome.duration_ms),
        "replicas": _replicas(record, outcome),
        "decode_rate": _decode_rate(outcome),
        # By the columns: the outcome itself may hold what no database takes.
        "model_exists": Model.objects.filter(name=record.model).exists(),
        "team": Team.objects.filter(slug=record.team).first(),
        "key": ApiKey.objects.filter(pk=record.key).first(),
        "similar": urlencode(
            {"model": record.model, "version": record.version}
            | ({} if record.ending == "completed" else {"ending": record.ending})
        ),
    }
    return render(request, "requests/request.html", context)


def _replicas(record: OutcomeRecord, outcome: Outcome) -> list[tuple[str, Mark | None]]:
    """The replicas of the version that was tried last, as they were then."""
    if not record.version:
        return []
    chosen_ms = outcome.attempts[-1].at_ms if outcome.attempts else 0.0
    at = record.at + timedelta(milliseconds=min(max(chosen_ms, 0.0), _DAY_MS))
    return [
        (id_, transition_mark(state.label, state.cause) if state else None)
        for id_, state in replicas_at(model=record.model, version=record.version, at=at)
    ]


def _decode_rate(outcome: Outcome) -> float | None:
    """Tokens per second between the first content and the last byte of a stream; of an
    answer in one piece, or of a few tokens at once, there is no such speed."""
    first, last = outcome.first_content_ms, outcome.last_byte_ms
    tokens = outcome.completion_tokens or 0
    if not outcome.streamed or first is None or last is None or tokens < 2:
        return None
    if last - first < _DECODE_LEAST_MS:
        return None
    return (tokens - 1) / (last - first) * 1000


def _missing(request: HttpRequest, text: str, found: UUID | None) -> HttpResponse:
    if is_poll(request):
        return HttpResponse(status=204)
    context: dict[str, Any] = {"text": text[:80], "id": found.hex if found else ""}
    if found is not None:
        known = outcome_whereabouts(request_id=found)
        arrived_at, now = known.arrived_at, timezone.now().astimezone(UTC)
        future = arrived_at is None or arrived_at > now + timedelta(minutes=1)
        context |= {
            "known": known,
            "future": future,
            "young": not future and bool(arrived_at and now - arrived_at < _YOUNG),
            "expired": bool(
                known.oldest and arrived_at and arrived_at < known.oldest and not future
            ),
        }
    return render(request, "requests/missing.html", context, status=404)
