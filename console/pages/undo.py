"""Taking the last change back.

A write that can be undone leaves an offer in the session of whoever made it; the next
page shows it for ten seconds. It is good once, and only while what it would change is
still as that write left it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from cluster.actor import Actor
from cluster.errors import Missing, Refused
from cluster.health import Admin
from cluster.models import Replica
from cluster.selectors.models import model_get
from cluster.services import model_update, replica_admin_set
from console.accounts.grants import Scope, grant_of
from console.bidi import isolated
from console.key_mark import key_etag
from console.pages import actor_of
from routing.models import Generation, Team
from routing.selectors import key_get, route_get
from routing.services import generation_restore, key_update, team_enabled_set

OFFERED_S = 10
# For the way of a click to the console, and for whoever keeps the offer on the page
# with the pointer or the focus. What it would change is looked at again in any case.
GRACE_S = 110
_SESSION_KEY = "undo"

State = Mapping[str, Any]


class Offer(NamedTuple):
    """``left_s`` is for how long it is still shown."""

    token: str
    text: str
    left_s: int


class Kind(NamedTuple):
    """``take_back`` brings what was before ``state`` back and says so, or refuses."""

    scope: Scope
    take_back: Callable[[State, Actor], str]


def undo_offer(
    request: HttpRequest, kind: str, text: str, *, back: str, **state: Any
) -> None:
    """Offer to take back what was just done; ``text`` says what that was, ``back`` is
    the page to show afterwards, ``state`` what ``kind`` needs, as plain values."""
    request.session[_SESSION_KEY] = {
        "token": secrets.token_urlsafe(12),
        "at": time.time(),
        "kind": kind,
        "text": text,
        "back": back,
        "state": state,
    }


def weights_undo_offer(
    request: HttpRequest, *, model: str, generation: Generation
) -> None:
    """The offer for a generation that was just made."""
    undo_offer(
        request,
        "weights",
        _("Saved as generation %(number)d.") % {"number": generation.number},
        back=reverse("traffic", args=[model]),
        model=model,
        generation=generation.number,
    )


def settings_undo_offer(
    request: HttpRequest, *, model: str, generation: Generation
) -> None:
    """The offer for a generation with other settings."""
    undo_offer(
        request,
        "settings",
        _("Saved as generation %(number)d.") % {"number": generation.number},
        back=reverse("route-settings", args=[model]),
        model=model,
        generation=generation.number,
    )


def undo_shown(request: HttpRequest) -> Offer | None:
    """The offer that is still open, for the frame of every page."""
    offer = request.session.get(_SESSION_KEY)
    if not offer:
        return None
    left_s = round(offer["at"] + OFFERED_S - time.time())
    return Offer(offer["token"], offer["text"], left_s) if left_s > 0 else None


@require_POST
def undo(request: HttpRequest) -> HttpResponse:
    offer = request.session.get(_SESSION_KEY)
    if not offer or offer["token"] != request.POST.get("token"):
        messages.error(request, _("There is nothing to undo any more."))
        return redirect("overview")
    del request.session[_SESSION_KEY]
    if time.time() - offer["at"] > OFFERED_S + GRACE_S:
        messages.error(request, _("Too late to undo; nothing was changed."))
        return redirect(offer["back"])
    kind = _KINDS[offer["kind"]]
    grant_of(request).require(kind.scope, team=offer["state"].get("team", ""))
    try:
        messages.success(request, kind.take_back(offer["state"], actor_of(request)))
    except Missing as missing:
        # Its page may be gone too, and would not show why.
        _refused(request, missing)
        return redirect("overview")
    except Refused as refusal:
        _refused(request, refusal)
    return redirect(offer["back"])


def _refused(request: HttpRequest, refusal: Refused) -> None:
    messages.error(request, _("Not undone. %(why)s") % {"why": str(refusal.message)})


def _changed_meanwhile() -> Refused:
    return Refused(_("Someone changed it meanwhile."), code="conflict")


def _generation_before(state: State, actor: Actor) -> Generation:
    return generation_restore(
        route=route_get(model=state["model"]),
        number=state["generation"] - 1,
        generation=state["generation"],
        actor=actor,
    )


def _weights(state: State, actor: Actor) -> str:
    generation = _generation_before(state, actor)
    return _("Undone: generation %(number)d has the weights from before.") % {
        "number": generation.number
    }


def _settings(state: State, actor: Actor) -> str:
    generation = _generation_before(state, actor)
    return _("Undone: generation %(number)d has the settings from before.") % {
        "number": generation.number
    }


@transaction.atomic
def _replica(state: State, actor: Actor) -> str:
    found = Replica.objects.select_for_update().filter(
        pk=state["id"], admin_state=state["now"], removed_at=None
    )
    # The same state may be another one's: only its beginning tells them apart.
    replica = found.filter(admin_since=datetime.fromisoformat(state["since"])).first()
    if replica is None:
        raise _changed_meanwhile()
    replica_admin_set(replica=replica, state=Admin(state["before"]), actor=actor)
    return _("Undone: %(id)s is as it was.") % {"id": replica.id}


@transaction.atomic
def _team(state: State, actor: Actor) -> str:
    since = state["disabled_at"]
    team = (
        Team.objects.select_for_update()
        .filter(
            slug=state["slug"],
            disabled_at=datetime.fromisoformat(since) if since else None,
        )
        .first()
    )
    if team is None:
        raise _changed_meanwhile()
    team_enabled_set(team=team, enabled=since is not None, actor=actor)
    return _("Undone: the team %(name)s is as it was.") % {"name": isolated(team.name)}


@transaction.atomic
def _key(state: State, actor: Actor) -> str:
    key = key_get(key_id=state["id"], lock=True)
    if key_etag(key) != state["etag"]:
        raise _changed_meanwhile()
    before = state["before"]
    moment = before["expires_at"]
    key_update(
        key=key,
        actor=actor,
        name=before["name"],
        owner=before["owner"],
        tags=before["tags"],
        models=before["models"],
        scopes=before["scopes"],
        expires_at=datetime.fromisoformat(moment) if moment else None,
    )
    return _("Undone: the key %(name)s is as it was.") % {"name": isolated(key.name)}


@transaction.atomic
def _model(state: State, actor: Actor) -> str:
    model = model_get(name=state["name"], lock=True)
    if model.description != state["after"]:
        raise _changed_meanwhile()
    model_update(model=model, description=state["before"], actor=actor)
    return _("Undone: %(id)s is as it was.") % {"id": model.name}


_KINDS = {
    "model": Kind(Scope.FLEET, _model),
    "weights": Kind(Scope.TRAFFIC, _weights),
    "settings": Kind(Scope.TRAFFIC, _settings),
    "replica": Kind(Scope.FLEET, _replica),
    "team": Kind(Scope.TEAMS, _team),
    "key": Kind(Scope.KEYS, _key),
}
