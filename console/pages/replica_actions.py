"""What can be done to a replica, what it would do, and why not now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from cluster.models import Driver, Replica
from console.history import percent
from routing.selectors.fleet import VersionView

Words = str | Promise


class Verb(NamedTuple):
    """``asks`` verbs disturb running requests: a dialog tells the effect first."""

    button: Words
    done: Words
    effect: Words
    asks: bool


VERBS = {
    "enable": Verb(
        pgettext_lazy("verb", "Enable"),
        gettext_lazy("%(id)s is enabled."),
        gettext_lazy("It may get requests again as soon as it is healthy."),
        False,
    ),
    "drain": Verb(
        pgettext_lazy("verb", "Drain"),
        gettext_lazy("%(id)s is draining."),
        gettext_lazy("New requests go elsewhere; what runs is finished."),
        True,
    ),
    "disable": Verb(
        pgettext_lazy("verb", "Disable"),
        gettext_lazy("%(id)s is disabled."),
        gettext_lazy("It gets no requests until someone enables it."),
        False,
    ),
    "start": Verb(
        pgettext_lazy("verb", "Start"),
        gettext_lazy("%(id)s is wanted: its node starts it."),
        gettext_lazy("Its node starts the process; loading takes a while."),
        False,
    ),
    "stop": Verb(
        pgettext_lazy("verb", "Stop"),
        gettext_lazy("%(id)s is not wanted any more: its node stops it."),
        gettext_lazy("Its node ends the process; requests that run on it break off."),
        True,
    ),
    "restart": Verb(
        pgettext_lazy("verb", "Restart"),
        gettext_lazy("%(id)s gets a fresh process."),
        gettext_lazy("Its process is replaced; requests that run on it break off."),
        True,
    ),
    "remove": Verb(
        pgettext_lazy("verb", "Remove"),
        gettext_lazy("%(id)s was removed."),
        gettext_lazy("It leaves every list for good; its id is never used again."),
        True,
    ),
}


@dataclass(frozen=True)
class Action:
    """One button. ``blocked`` is why it cannot be pressed now, or empty."""

    verb: str
    button: str
    effect: str
    asks: bool
    blocked: str
    facts: list[str]


def action_list(replica: Replica, peers: VersionView) -> list[Action]:
    """Every verb, in a fixed order, the destructive one last."""
    facts = _facts(replica, peers)
    return [
        Action(
            verb=name,
            button=str(verb.button),
            effect=str(verb.effect),
            asks=verb.asks,
            blocked=_blocked(replica, name),
            facts=facts,
        )
        for name, verb in VERBS.items()
    ]


def _blocked(replica: Replica, verb: str) -> str:
    if replica.removed_at is not None:
        return _("The replica was removed.")
    if verb in ("start", "stop", "restart") and replica.driver != Driver.PROCESS:
        return _("Sluice does not run this replica: start and stop it where it runs.")
    if verb == "start" and replica.wanted_running:
        return _("It is already wanted to run.")
    if verb == "stop" and not replica.wanted_running:
        return _("It is already wanted to stand still.")
    states = {"enable": "enabled", "drain": "draining", "disable": "disabled"}
    if states.get(verb) == replica.admin_state:
        return {
            "enable": _("It is enabled already."),
            "drain": _("It is draining already."),
            "disable": _("It is disabled already."),
        }[verb]
    return ""


def _facts(replica: Replica, peers: VersionView) -> list[str]:
    """What a person should know before disturbing it; says unknown where it is."""
    others = [view.state for view in peers.replicas if view.replica.pk != replica.pk]
    share = _("%(version)s gets %(share)s of the requests.") % {
        "version": peers.version.name,
        "share": percent(peers.weight_bp),
    }
    running = _("How many requests run on it is unknown: not measured yet.")
    if None in others:
        return [share, _("Whether others are ready is unknown."), running]
    ready = sum(state is not None and state.eligible for state in others)
    if ready:
        rest = ngettext(
            "%(n)d other replica of this version is ready.",
            "%(n)d other replicas of this version are ready.",
            ready,
        ) % {"n": ready}
    else:
        rest = _("No other replica of this version is ready.")
    return [share, rest, running]


def undo_of(replica: Replica, verb: str) -> Action | None:
    """The way back that was offered with the last action, if it still leads away."""
    if verb not in ("enable", "drain", "disable") or _blocked(replica, verb):
        return None
    words = VERBS[verb]
    return Action(verb, str(words.button), str(words.effect), False, "", [])
