"""The search: a page of its own, and the list under the box of every page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from console.outcome_query import request_id_read
from console.search import QUERY_MOST, search, searched_words


@require_safe
def search_show(request: HttpRequest) -> HttpResponse:
    """``?list`` is asked by the box while somebody writes. A request id that was sent
    off leads straight to its request."""
    query = request.GET.get("q", "").strip()[:QUERY_MOST]
    in_box = "list" in request.GET
    if not in_box and (request_id := request_id_read(query)):
        return redirect("request", request_id=request_id.hex)
    groups = search(request, query)
    count = sum(len(group.hits) for group in groups)
    context = {
        "query": query,
        "groups": groups,
        "count": ngettext("%(n)d hit", "%(n)d hits", count) % {"n": count},
        "searched": searched_words(),
    }
    template = "search/list.html" if in_box else "search/page.html"
    return render(request, template, context)
