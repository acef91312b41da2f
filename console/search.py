"""One box that finds everything by its name, its id, or a part of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from cluster.models import Model, Node, Replica, Version
from console.accounts.grants import Scope, grant_of
from console.frame import nav_items
from console.outcome_query import request_id_read
from routing.models import Team
from routing.selectors import KeyFind, key_page
from routing.selectors.outcomes import outcome_get

EACH_MOST = 8
QUERY_MOST = 200


@dataclass(frozen=True)
class Hit:
    """``note`` tells it from others of the same name."""

    text: str
    url: str
    note: str = ""


@dataclass(frozen=True)
class Group:
    name: str
    title: str
    hits: list[Hit]
    more: bool = False


def search(request: HttpRequest, query: str) -> list[Group]:
    """What fits, in groups of at most ``EACH_MOST``; those with nothing are left out.
    An empty query finds the pages and what can be done."""
    text = query.strip()[:QUERY_MOST]
    if "\0" in text:
        return []
    places = [_group("pages", _("Pages and actions"), _pages(request, text))]
    if not text:
        return places
    groups = [
        _group(name, title, find(text))
        for name, title, find in (
            ("requests", _("Requests"), _requests),
            ("models", _("Models"), _models),
            ("versions", _("Versions"), _versions),
            ("replicas", _("Replicas"), _replicas),
            ("nodes", _("Nodes"), _nodes),
            ("teams", _("Teams"), _teams),
            ("keys", _("Keys"), _keys),
        )
    ]
    return [group for group in groups + places if group.hits]


def searched_words() -> str:
    return _(
        "Searched: request ids of all time that is kept; models, versions, replicas, "
        "nodes and teams by any part of their name; keys by name, owner, tag, first "
        "and last characters; pages and actions."
    )


def _group(name: str, title: str, hits: Iterable[Hit]) -> Group:
    found = list(hits)
    return Group(name, title, found[:EACH_MOST], len(found) > EACH_MOST)


def _requests(text: str) -> list[Hit]:
    request_id = request_id_read(text)
    if request_id is None:
        return []
    record = outcome_get(request_id=request_id)
    note = f"{record.model} {record.version}".strip() if record else _("not kept")
    return [Hit(request_id.hex, reverse("request", args=[request_id.hex]), note)]


def _models(text: str) -> list[Hit]:
    names = Model.objects.filter(name__icontains=text).order_by("name")
    return [
        Hit(name, reverse("model", args=[name]))
        for name in names.values_list("name", flat=True)[: EACH_MOST + 1]
    ]


def _versions(text: str) -> list[Hit]:
    """By name, or by that of the model and its own."""
    fits = Q(name__icontains=text)
    model, _space, name = text.replace("/", " ").partition(" ")
    if name.strip():
        fits |= Q(model__name__icontains=model, name__icontains=name.strip())
    found = Version.objects.filter(fits).order_by("model__name", "name")
    return [
        Hit(name, reverse("model", args=[model]), model)
        for model, name in found.values_list("model__name", "name")[: EACH_MOST + 1]
    ]


def _replicas(text: str) -> list[Hit]:
    """By id or address; one that was removed by its whole id only."""
    there = Q(removed_at__isnull=True)
    fits = there & (Q(pk__icontains=text) | Q(address__icontains=text)) | Q(pk=text)
    found = Replica.objects.filter(fits).order_by("pk")
    return [
        Hit(id_, reverse("replica", args=[id_]), _("removed") if gone else address)
        for id_, address, gone in found.values_list("pk", "address", "removed_at")[
            : EACH_MOST + 1
        ]
    ]


def _nodes(text: str) -> list[Hit]:
    names = Node.objects.filter(name__icontains=text).order_by("name")
    return [
        Hit(name, reverse("node", args=[name]))
        for name in names.values_list("name", flat=True)[: EACH_MOST + 1]
    ]


def _teams(text: str) -> list[Hit]:
    fits = Q(name__icontains=text) | Q(slug__icontains=text)
    found = Team.objects.filter(fits).order_by("slug")
    return [
        Hit(name, reverse("team", args=[slug]), slug)
        for slug, name in found.values_list("slug", "name")[: EACH_MOST + 1]
    ]


def _keys(text: str) -> list[Hit]:
    page = key_page(find=KeyFind(text), limit=EACH_MOST + 1)
    return [
        Hit(
            key.name,
            reverse("key", args=[key.pk]),
            f"sk-{key.pk}…{key.last_four} · {key.team.name}",
        )
        for key in page.rows
    ]


def _pages(request: HttpRequest, text: str) -> list[Hit]:
    """The entries of the menu, and what can be begun; who may not is told why."""
    grant = grant_of(request)
    hits = [Hit(item.text, reverse(item.url_name)) for item in nav_items(request)]
    actions: tuple[tuple[str, str, Scope], ...] = (
        ("model-new", _("Add a model"), Scope.FLEET),
        ("replica-new", _("Add a replica"), Scope.FLEET),
        ("team-new", _("Add a team"), Scope.TEAMS),
    )
    hits.append(Hit(_("Keys"), reverse("keys")))
    hits += [Hit(words, reverse(n), grant.refusal(s)) for n, words, s in actions]
    folded = text.casefold()
    return [h for h in hits if folded in h.text.casefold() or folded in h.url]
