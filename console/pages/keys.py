"""Keys: found among all teams, issued, changed, and revoked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from cluster.errors import Missing, Refused
from console import history
from console.accounts.grants import Scope, grant_of
from console.base_url import base_url
from console.bidi import isolated
from console.conflict import Difference, differences
from console.key_mark import key_etag, key_mark
from console.key_paging import cursor_read, cursor_write
from console.pages import actor_of, refusal_add
from console.pages.key_forms import STATES, KeyForm, key_initial
from console.pages.once import once_token, once_use
from console.pages.undo import undo_offer
from console.status import Mark
from routing.contracts.keys import key_public_id
from routing.models import ApiKey, Team
from routing.selectors import KeyFind, KeyState, key_get, key_page, team_get
from routing.selectors.keys import QUERY_LENGTH
from routing.selectors.usage import usage_lately
from routing.services import key_issue, key_update
from routing.services import key_revoke as revoke
from routing.services.keys import key_described

PAGE_ROWS = 50
_TEAMS_OFFERED = 500
# Whoever revokes a key that was used so lately types its name.
_IN_USE = timedelta(days=1)


@dataclass(frozen=True)
class KeyRows:
    """One page of a list; ``older`` is the query of the next, empty on the last."""

    rows: list[tuple[ApiKey, Mark]]
    older: str
    is_first: bool


def key_rows(request: HttpRequest, find: KeyFind, **query: str) -> KeyRows:
    """The page of a list that ``?cursor=`` names. A cursor that fits no longer, as
    after an upgrade, leads to the first one."""
    cursor = request.GET.get("cursor", "")
    try:
        after = cursor_read(find, cursor) if cursor else None
    except Refused:
        after = None
    page, now = key_page(find=find, after=after, limit=PAGE_ROWS), timezone.now()
    older = ""
    if page.following:
        kept = {name: value for name, value in query.items() if value}
        older = urlencode({**kept, "cursor": cursor_write(find, page.following)})
    rows = [(key, key_mark(key, now)) for key in page.rows]
    return KeyRows(rows, older, is_first=after is None)


@require_safe
def key_list(request: HttpRequest) -> HttpResponse:
    """The keys of all teams, by ``?q=``, ``?state=`` and ``?team=``."""
    query = request.GET.get("q", "").strip()[:QUERY_LENGTH]
    if public_id := key_public_id(query):
        # A whole key was pasted: its secret does not belong into an address.
        return redirect(f"{reverse('keys')}?{urlencode({'q': f'sk-{public_id}'})}")
    state, team = request.GET.get("state", ""), request.GET.get("team", "")
    find = _find(query, state, team)
    shown = {"q": query, "state": state, "team": team}
    context = {
        "page": None if find is None else key_rows(request, find, **shown),
        "first_query": urlencode(shown),
        "states": [(one.value, word) for one, word in STATES.items()],
        "teams": Team.objects.all()[:_TEAMS_OFFERED],
        "query": query,
        "state": state,
        "team_slug": team,
        "filtered": bool(query or state or team),
    }
    return render(request, "keys/list.html", context)


def _find(query: str, state: str, slug: str) -> KeyFind | None:
    """None for a state or a team that does not exist: no key is in them."""
    try:
        team = team_get(slug=slug) if slug else None
        return KeyFind(query, KeyState(state) if state else None, team)
    except (Missing, ValueError):
        return None


def _write_require(request: HttpRequest, team: Team) -> None:
    """Whoever leads the team may too; a form may be looked at by anybody."""
    if request.method == "POST":
        grant_of(request).require(Scope.KEYS, team=team.slug)


@require_http_methods(["GET", "HEAD", "POST"])
def key_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Issue a key. The answer to the POST is the only page that ever shows it."""
    team = team_get(slug=slug)
    _write_require(request, team)
    form = KeyForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        if not once_use(request):
            messages.error(
                request, _("That form was sent before. No second key was issued.")
            )
            return redirect("team", slug=team.slug)
        try:
            key, text = key_issue(
                team=team, actor=actor_of(request), **form.service_values()
            )
        except Refused as refusal:
            refusal_add(form, refusal)
        else:
            context = {
                "team": team,
                "key": key,
                "secret": text,
                "env": env_lines(request, text),
            }
            return render(request, "keys/issued.html", context)
    context = {"form": form, "team": team, "once": once_token(request)}
    status = 422 if form.errors else 200
    return render(request, "keys/new.html", context, status=status)


def env_lines(request: HttpRequest, secret: str) -> str:
    """What an OpenAI client reads from its environment, and the name that the examples
    of this console use."""
    return (
        f"OPENAI_BASE_URL={base_url(request)}\n"
        f"OPENAI_API_KEY={secret}\n"
        f"SLUICE_KEY={secret}"
    )


@require_http_methods(["GET", "HEAD", "POST"])
def key(request: HttpRequest, key_id: str) -> HttpResponse:
    """One key: what is known of it, and a form to change it without rotating it."""
    if request.method == "POST":
        return _change(request, key_id)
    row = key_get(key_id=key_id)
    return _key_page(request, row, KeyForm(key=row))


def _change(request: HttpRequest, key_id: str) -> HttpResponse:
    """Save the form if the key still is as it was when the form was opened."""
    with transaction.atomic():
        row = key_get(key_id=key_id, lock=True)
        _write_require(request, row.team)
        form = KeyForm(request.POST, key=row)
        if not form.is_valid():
            return _key_page(request, row, form, status=422)
        if request.POST.get("seen") != key_etag(row):
            return _key_page(request, row, form, status=409)
        before = key_described(row)
        try:
            row = key_update(key=row, actor=actor_of(request), **form.service_values())
        except Refused as refusal:
            refusal_add(form, refusal)
            return _key_page(request, key_get(key_id=key_id), form, status=422)
    done = _("Saved. Gateways go by it within 2 s; the key is the same.")
    if before == key_described(row):
        messages.success(request, done)
    else:
        undo_offer(
            request,
            "key",
            done,
            back=reverse("key", args=[row.id]),
            id=row.id,
            team=row.team.slug,
            etag=key_etag(row),
            before=before,
        )
    return redirect("key", key_id=row.id)


def _in_use(key: ApiKey) -> bool:
    """Whether somebody would notice at once that it is gone."""
    used = key.last_used_at
    return used is not None and used > timezone.now() - _IN_USE


def _key_page(
    request: HttpRequest,
    row: ApiKey,
    form: KeyForm,
    *,
    status: int = 200,
    wrong: str = "",
) -> HttpResponse:
    context: dict[str, Any] = {
        "key": row,
        "mark": key_mark(row, timezone.now()),
        "form": form,
        "seen": key_etag(row),
        "confirm": "revoke" if wrong else request.GET.get("confirm", ""),
        "in_use": _in_use(row),
        "requests_day": usage_lately(key=row.id, days=1).requests,
        "wrong": wrong,
        "changes": history.recent(f"{row.team.slug}/{row.id}", "key"),
        "theirs": _theirs(form, row) if status == 409 else [],
        "conflict": status == 409,
    }
    return render(request, "keys/key.html", context, status=status)


def _theirs(form: KeyForm, row: ApiKey) -> list[Difference]:
    """Where the key differs now from what the form would save. A lifetime is chosen
    anew, and cannot."""
    every = [_("every model")]
    now, mine = key_initial(row), dict(form.cleaned_data)
    del now["expiry"]
    for values in (now, mine):
        values["models"] = sorted(values["models"]) or every
    return differences(form, mine, now)


@require_POST
def key_revoke(request: HttpRequest, key_id: str) -> HttpResponse:
    row = key_get(key_id=key_id)
    _write_require(request, row.team)
    if _in_use(row) and request.POST.get("typed", "").strip() != row.name:
        form = KeyForm(key=row)
        wrong = _("It is in use: type its name exactly to revoke it.")
        return _key_page(request, row, form, status=422, wrong=wrong)
    revoke(key=row, actor=actor_of(request))
    messages.success(
        request,
        _("The key %(name)s is refused from now on.") % {"name": isolated(row.name)},
    )
    return redirect("key", key_id=row.id)
