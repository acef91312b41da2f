"""Which gateways run, what each applies, and what was published."""

from __future__ import annotations

import redis
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.measured import check_mark, checks, gateway_marks
from console.pages import is_poll
from console.status import Mark
from routing.contracts.gateway import GatewayRecord
from routing.models import Revision
from routing.selectors import gateway_list, revision_list
from routing.selectors.measured import RouteCheck, split_list

_REVISIONS = 50


@require_safe
def gateways(request: HttpRequest) -> HttpResponse:
    """``?before=`` a revision number pages through the older ones."""
    newest = Revision.objects.only("number", "epoch").first()
    found = list((checks(split_list()) or {}).values())
    context: dict[str, object] = {
        "gateways": _gateways(found),
        "newest": newest,
        "failing": [(check.model, check_mark(check)) for check in found if check.fails],
    }
    if is_poll(request):
        return render(request, "gateways/live.html", context)
    before = request.GET.get("before", "")
    revisions = revision_list()
    if before.isascii() and before.isdigit():
        revisions = revisions.filter(number__lt=min(int(before), 2**62))
    rows = list(revisions[: _REVISIONS + 1])
    context |= {
        "revisions": rows[:_REVISIONS],
        "older": rows[_REVISIONS - 1].number if len(rows) > _REVISIONS else None,
        "paged": bool(before),
    }
    return render(request, "gateways/index.html", context)


def _gateways(
    found: list[RouteCheck],
) -> list[tuple[GatewayRecord, Mark | None]] | None:
    """Each with whether it draws by the weights; None while Redis is away: then nobody
    here knows which gateways run."""
    marks = gateway_marks(found)
    try:
        return [(record, marks.get(record.id)) for record in gateway_list()]
    except redis.RedisError:
        return None
