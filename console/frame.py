"""What every page's frame shows, whatever the page."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest
from django.utils.translation import gettext as _

from console.accounts.grants import Scope, grant_of
from console.notices import notices
from console.pages.undo import undo_shown
from console.request_id import request_id

THEMES = ("system", "light", "dark")
THEME_COOKIE = "sluice_theme"


class NavItem(NamedTuple):
    url_name: str
    icon: str
    text: str
    current: bool

    @property
    def letter(self) -> str:
        """What leads there after a g."""
        return _LETTERS.get(self.url_name, "")


_LETTERS = {
    "overview": "o",
    "models": "m",
    "replicas": "r",
    "nodes": "n",
    "teams": "t",
    "requests": "q",
    "usage": "u",
    "gateways": "w",
}


# Which entry of the menu a page belongs to.
_SECTIONS = {
    "overview": {"overview"},
    "models": {
        "route-history",
        "route-settings",
        "models",
        "model",
        "traffic",
        "analysis",
        "model-edit",
        "model-remove",
        "model-new",
        "version-new",
    },
    "replicas": {"replicas", "replica", "replica-new"},
    "nodes": {"nodes", "node"},
    "teams": {"teams", "team", "team-new", "keys", "key", "key-new"},
    "requests": {"requests", "request"},
    "usage": {"usage"},
    "gateways": {"gateways"},
    "audit": {"audit"},
    "users": {"users", "user", "user-new"},
    "help": {"help", "help-chapter"},
}

# Which chapter of the guide explains the pages of an entry; a page may have its own.
_CHAPTERS = {
    "overview": "console",
    "models": "concepts",
    "traffic": "weights",
    "route-settings": "concepts",
    "replicas": "troubleshooting",
    "nodes": "operations",
    "teams": "accounts",
    "keys": "keys",
    "key": "keys",
    "key-new": "keys",
    "version-new": "engines",
    "requests": "troubleshooting",
    "usage": "concepts",
    "gateways": "weights",
    "audit": "accounts",
    "users": "accounts",
    "user": "accounts",
}


def frame(request: HttpRequest) -> dict[str, Any]:
    theme = request.COOKIES.get(THEME_COOKIE, "system")
    return {
        "version": settings.VERSION,
        "theme": theme if theme in THEMES else "system",
        "request_id": request_id(),
        "now_ms": time.time_ns() // 1_000_000,
        "nav": nav_items(request),
        "leads": sorted(grant_of(request).leads),
        "help_chapter": _help_chapter(request),
        # Called only by templates that show them.
        "notices": notices,
        "undo_offer": lambda: undo_shown(request),
        "script_words": _script_words,
        "copy_words": copy_words,
    }


def _help_chapter(request: HttpRequest) -> str:
    """The chapter that explains the page of this request; empty in the guide itself."""
    match = request.resolver_match
    here = match.url_name if match else ""
    section = next((name for name, pages in _SECTIONS.items() if here in pages), "")
    return _CHAPTERS.get(here or "") or _CHAPTERS.get(section, "")


def nav_items(request: HttpRequest) -> list[NavItem]:
    match = request.resolver_match
    here = match.url_name if match else ""
    grant = grant_of(request)
    return [
        NavItem(name, name, text, here in _SECTIONS[name])
        for name, text, scope in (
            ("overview", _("Overview"), Scope.READ),
            ("models", _("Models"), Scope.READ),
            ("replicas", _("Replicas"), Scope.READ),
            ("nodes", _("Nodes"), Scope.READ),
            ("teams", _("Teams"), Scope.READ),
            ("requests", _("Requests"), Scope.READ),
            ("usage", _("Usage"), Scope.READ),
            ("gateways", _("Gateways"), Scope.READ),
            ("audit", _("Audit log"), Scope.AUDIT),
            ("users", _("Users"), Scope.ACCOUNTS),
            ("help", _("Help"), Scope.READ),
        )
        if grant.allows(scope)
    ]


def copy_words() -> dict[str, str]:
    """Those of a page without a frame."""
    return {
        "copied": _("Copied"),
        "copy_failed": _("Not copied: press Ctrl+C, the text is selected"),
    }


def _script_words() -> dict[str, str]:
    """The sentences that scripts show, with named places to fill."""
    return {
        "ago_d": _("{n} d ago"),
        "ago_h": _("{n} h ago"),
        "ago_min": _("{n} min ago"),
        "ago_s": _("{n} s ago"),
        "in_d": _("in {n} d"),
        "in_h": _("in {n} h"),
        "in_min": _("in {n} min"),
        "in_s": _("in {n} s"),
        "now": _("now"),
        "live": _("Live"),
        "reconnecting": _("Reconnecting: last heard {n} s ago"),
        "stale": _("Stale: last heard {n} s ago"),
        "offline": _("Offline: last heard {n} s ago"),
        "not_refreshed": _("Not refreshed: {why} What is shown is older."),
        "no_answer": _("the console did not answer in time."),
        "no_connection": _("the console cannot be reached."),
        "answered": _("the console answered {status}."),
        "seek_failed": _("The search did not answer. Press Enter to ask again."),
        "clock_fast": _(
            "The clock of this browser is {n} s ahead of the server's: ages are shown "
            "longer than they are."
        ),
        "clock_slow": _(
            "The clock of this browser is {n} s behind the server's: ages are shown "
            "shorter than they are."
        ),
        "title_err": _("Fault"),
        "title_warn": _("Warning"),
        "not_collected": _("not collected"),
        "chart_text": _("now {now}, lowest {min}, highest {max}"),
        "chart_limit": _("limit {n}"),
        "chart_time": _("Time"),
        "log_newer_one": _("1 new line"),
        "log_newer": _("{n} new lines"),
        **copy_words(),
        "percent": "{share}\u00a0%",
        "slider": _("{version} {share} percent, was {was}"),
        "shares": _("Draft: {shares}"),
        "unchanged": _("No change yet: these weights are in force."),
        "moved": _("{share} of the requests move."),
        "gains": _("{version}: {before} → {after}, on {ready}."),
        "keeps": _("{version}: {before} → {after}."),
        "ready_one": _("1 ready replica"),
        "ready_many": _("{n} ready replicas"),
        "ready_none": _("no ready replica: its requests would go to other versions"),
        "ready_unknown": _("an unknown number of ready replicas"),
        "rate": _("That is about {moved} of {all} requests a minute."),
        "rate_none": _("There were no requests in the last minutes."),
        "rate_unknown": _("Requests per minute: unknown, not measured yet."),
        "undo_left": _("{n} s left"),
        "offline_kept": _(
            "You are offline. Nothing was sent; what you typed is still here."
        ),
        "online_again": _("You are online again: send it now."),
        "typed_kept": _("What you had typed was kept. Nothing is saved yet."),
        "draft_kept": _("Your draft from before was kept. Nothing was applied."),
        "others_locked": _("Every other version is locked or cannot take more."),
        "capped": _("At most {share} now: no replica of it is ready."),
        "floor": _("At least {share} now: the others cannot take more."),
        "jump": _("{share} of the requests change their version at once."),
    }
