"""What every page's frame shows, whatever the page."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest
from django.utils.translation import gettext as _

from console.notices import notices

THEMES = ("system", "light", "dark")
THEME_COOKIE = "sluice_theme"


class NavItem(NamedTuple):
    url_name: str
    icon: str
    text: str
    current: bool


# Which entry of the menu a page belongs to.
_SECTIONS = {
    "overview": {"overview"},
    "models": {"models", "model", "traffic", "analysis", "model-new", "version-new"},
    "replicas": {"replicas", "replica", "replica-new"},
    "nodes": {"nodes", "node"},
    "teams": {"teams", "team", "team-new", "keys", "key", "key-new"},
    "requests": {"requests", "request"},
    "usage": {"usage"},
    "gateways": {"gateways"},
}


def frame(request: HttpRequest) -> dict[str, Any]:
    theme = request.COOKIES.get(THEME_COOKIE, "system")
    return {
        "version": settings.VERSION,
        "theme": theme if theme in THEMES else "system",
        "nav": _nav(request),
        # Called only by templates that show them.
        "notices": notices,
        "script_words": _script_words,
    }


def _nav(request: HttpRequest) -> list[NavItem]:
    match = request.resolver_match
    here = match.url_name if match else ""
    return [
        NavItem(name, name, text, here in _SECTIONS[name])
        for name, text in (
            ("overview", _("Overview")),
            ("models", _("Models")),
            ("replicas", _("Replicas")),
            ("nodes", _("Nodes")),
            ("teams", _("Teams")),
            ("requests", _("Requests")),
            ("usage", _("Usage")),
            ("gateways", _("Gateways")),
        )
    ]


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
        "not_collected": _("not collected"),
        "chart_text": _("now {now}, lowest {min}, highest {max}"),
        "chart_limit": _("limit {n}"),
        "chart_time": _("Time"),
        "log_newer_one": _("1 new line"),
        "log_newer": _("{n} new lines"),
        "copied": _("Copied"),
        "copy_failed": _("Not copied: press Ctrl+C, the text is selected"),
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
        "draft_kept": _("Your draft from before was kept. Nothing was applied."),
        "others_locked": _("Every other version is locked or cannot take more."),
        "capped": _("At most {share} now: no replica of it is ready."),
        "floor": _("At least {share} now: the others cannot take more."),
        "jump": _("{share} of the requests change their version at once."),
    }
