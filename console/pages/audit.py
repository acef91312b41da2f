"""Who did what, when, from where: the audit log, searched and taken away."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from cluster.models import AuditRecord
from cluster.selectors.audit import AuditFind, audit_find, audit_page
from console import history
from console.audit_diff import Changed, changed
from console.csv_file import csv_response
from console.time_range import TimeRange, time_control, time_range_read, zone_of

_ROWS = 50
_FILE_ROWS = 100_000
_TEXT_MOST = 200
_TEXTS = ("actor", "action", "target", "text")
_KINDS = (
    *("model", "version", "replica", "node", "weights", "route", "team", "key"),
    *("user", "token", "session", "access"),
)
_COLUMNS = ("id", "at", "actor_kind", "actor_name", "actor_address", "action", "target")


@dataclass(frozen=True)
class Asked:
    """``given`` are the values of the address that were understood."""

    find: AuditFind
    range: TimeRange
    given: dict[str, str]

    @property
    def query(self) -> str:
        return urlencode(self.given)


@dataclass(frozen=True)
class Line:
    entry: history.Entry
    record: AuditRecord
    changes: list[Changed]


def asked_read(request: HttpRequest) -> Asked:
    query = request.GET
    zone = zone_of(request.user)
    span = time_range_read(query, zone=zone, now=timezone.now())
    texts = {
        name: query.get(name, "").strip().replace("\0", "")[:_TEXT_MOST]
        for name in _TEXTS
    }
    find = AuditFind(**texts, since=span.since, until=span.until)
    given = {name: text for name, text in texts.items() if text} | span.given
    return Asked(find, span, given)


@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    asked = asked_read(request)
    before = request.GET.get("before", "")
    if not (before.isascii() and before.isdigit() and len(before) < 19):
        before = ""
    below = int(before) if before else None
    found = audit_page(find=asked.find, before=below, limit=_ROWS + 1)
    shown = found[:_ROWS]
    older = ""
    if len(found) > _ROWS:
        older = urlencode(asked.given | {"before": shown[-1].pk})
    context = {
        "asked": asked,
        "lines": lines(shown),
        "older": older,
        "before": before,
        "control": time_control(
            asked.range,
            {n: v for n, v in asked.given.items() if n not in asked.range.given},
            own_zone=zone_of(request.user),
            all_words=_("all time"),
        ),
        "kinds": _KINDS,
        "any": bool(shown) or AuditRecord.objects.exists(),
    }
    return render(request, "audit/index.html", context)


def lines(records: list[AuditRecord]) -> list[Line]:
    return [
        Line(entry, record, changed(record.before, record.after))
        for entry, record in zip(history.entries(records), records, strict=True)
    ]


@require_safe
def audit_file(request: HttpRequest, ending: str) -> HttpResponse:
    """The records that fit, oldest last, as a spreadsheet or as lines of JSON."""
    asked = asked_read(request)
    rows = audit_find(asked.find).values()[: _FILE_ROWS + 1]
    found: list[dict[str, Any]] = [dict(row) for row in rows]
    problems = list(asked.range.errors.values())
    if len(found) > _FILE_ROWS or problems:
        refusal = _("These are too many records for one file: choose a shorter time.")
        text = "\n".join(problems) or refusal
        return HttpResponse(text, status=422, content_type="text/plain; charset=utf-8")
    for row in found:
        row["at"] = row["at"].isoformat()
    if ending == "csv":
        cells = (
            [
                *(row[name] for name in _COLUMNS),
                *map(_json, (row["before"], row["after"])),
            ]
            for row in found
        )
        return csv_response("audit.csv", (*_COLUMNS, "before", "after"), cells)
    response = HttpResponse(
        "".join(f"{_json(row)}\n" for row in found),
        content_type="application/x-ndjson; charset=utf-8",
    )
    response["Content-Disposition"] = 'attachment; filename="audit.jsonl"'
    return response


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)
