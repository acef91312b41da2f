"""Every page there is and how to ask for it: for what must hold on all of them.

A route that stands in the table of addresses must stand here too, in ``looks`` or in
``WRITES``: ``looks_missing`` tells.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

from django.http import HttpResponseBase
from django.test import Client
from django.urls import reverse

from console.pages.urls import urlpatterns

# What is only ever sent to; to look there says nothing.
WRITES = frozenset(
    {
        "logout",
        "language",
        "theme",
        "undo",
        "model-remove",
        "replica-act",
        "team-act",
        "key-revoke",
        "user-act",
        "user-session-end",
        "user-token-revoke",
        "profile-token-revoke",
        "profile-session-end",
        "profile-sessions-end",
    }
)


class Cast(NamedTuple):
    """Names of what there is one of at least; ``replica`` is run by ``node``. ``other``
    is a replica at a fixed address, ``request`` the id of a request that is kept."""

    model: str
    version: str
    replica: str
    other: str
    node: str
    team: str
    key: str
    request: str
    user: str


class Look(NamedTuple):
    """One way to ask for a page; ``poll`` asks for its live part."""

    route: str
    args: tuple[str, ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    poll: bool = False

    @property
    def address(self) -> str:
        query = f"?{urlencode(self.query)}" if self.query else ""
        return reverse(self.route, args=self.args) + query

    def __str__(self) -> str:
        query = f" ?{urlencode(self.query)}" if self.query else ""
        return f"{self.route}{query}{' (poll)' if self.poll else ''}"

    def ask(self, client: Client) -> HttpResponseBase:
        """By somebody who is logged in, but for the login itself."""
        if self.route == "login":
            defaults, client = client.defaults, Client()
            client.defaults.update(defaults)
        headers = {"HX-Request": "true"} if self.poll else {}
        return client.get(self.address, headers=headers)


def look(route: str, *args: str, poll: bool = False, **query: str) -> Look:
    """A name in the query may end in a line that it has not: ``from_``."""
    found = tuple((name.rstrip("_"), value) for name, value in query.items())
    return Look(route, args, found, poll)


def routes() -> set[str]:
    """The names of all pages, from the table of addresses."""
    return {str(pattern.name) for pattern in urlpatterns}


def looks(cast: Cast) -> list[Look]:
    """All of them, those of one route together."""
    return [
        look("login"),
        *_fleet(cast),
        *_replicas(cast),
        *_access(cast),
        *_records(cast),
        *_accounts(cast),
    ]


def _fleet(cast: Cast) -> list[Look]:
    model, node = cast.model, cast.node
    return [
        look("overview"),
        look("overview", poll=True),
        look("models"),
        look("model", model),
        look("model-edit", model),
        look("analysis", model),
        look("analysis", model, range="7d"),
        *(look("analysis-data", model, range=span) for span in ("1h", "24h", "7d")),
        look("analysis-csv", model, range="7d", chart="traffic"),
        look("analysis-csv", model, range="7d", chart="ttft"),
        look("traffic", model),
        look("traffic", model, poll=True),
        look("route-history", model),
        look("route-history", model, from_="1", to="2"),
        look("route-history", model, restore="1"),
        look("route-settings", model),
        look("version-new", model),
        look("version-new", model, from_=cast.version),
        look("model-new"),
        look("nodes"),
        look("nodes", poll=True),
        look("node", node),
        look("node", node, poll=True),
        look("gateways"),
        look("gateways", poll=True),
    ]


def _replicas(cast: Cast) -> list[Look]:
    replica, other = cast.replica, cast.other
    return [
        look("replicas"),
        look("replicas", poll=True),
        look("replicas", model=cast.model),
        look("replicas", state="down"),
        look("replica", replica),
        look("replica", other),
        look("replica", replica, poll=True),
        look("replica-timeline", replica),
        look("replica-engine", replica),
        look("replica-now", replica),
        look("replica-log", replica),
        look("replica-new"),
    ]


def _access(cast: Cast) -> list[Look]:
    return [
        look("teams"),
        look("team", cast.team),
        look("key-new", cast.team),
        look("keys"),
        look("keys", q="k"),
        look("keys", q="nowhere-to-be-found"),
        *(
            look("keys", state=state)
            for state in ("active", "expiring", "expired", "revoked", "unused")
        ),
        look("key", cast.key),
        look("team-new"),
    ]


def _records(cast: Cast) -> list[Look]:
    groups = ("day", "team", "key", "model", "version")
    return [
        look("requests"),
        look("requests", poll=True),
        look("requests", model=cast.model, ending="refused"),
        look("request", cast.request),
        look("request", "0" * 32),
        look("search"),
        look("search", q=cast.model[:3]),
        look("search", q=cast.model[:3], list=""),
        look("search", q="nowhere-to-be-found"),
        look("usage"),
        *(look("usage", by=by) for by in groups[1:]),
        look("usage", by="key", team=cast.team),
        *(look("usage-data", by=by) for by in groups),
        look("usage-chart-csv", by="team", chart="tokens"),
        look("usage-csv", team=cast.team),
        look("audit"),
        look("audit", text=cast.model),
        look("audit", text="nowhere-to-be-found"),
        look("audit", actor="nobody", text="nowhere-to-be-found"),
        look("audit", action="weights", range="24h"),
        look("audit-csv", target=cast.model),
        look("audit-jsonl", target=cast.model),
    ]


def _accounts(cast: Cast) -> list[Look]:
    return [
        look("users"),
        look("user", cast.user),
        look("user-new"),
        look("profile"),
        look("profile-password"),
        look("profile-token-new"),
        look("help"),
        look("help-chapter", "concepts"),
    ]


def looks_missing(cast: Cast) -> set[str]:
    """Routes that neither stand in the table nor are known as writes only, and names
    in either that no route has."""
    shown = {one.route for one in looks(cast)}
    return (shown | WRITES) ^ routes() | (shown & WRITES)
