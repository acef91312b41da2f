"""What can be done to a replica, what it would do, and why not now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from cluster.health import Label
from cluster.models import Driver, Replica
from console.history import percent
from console.live.readings import Reading
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
        gettext_lazy(
            "It finishes what runs, for five minutes at most; then its node ends it."
        ),
        True,
    ),
    "stop-now": Verb(
        pgettext_lazy("verb", "Stop now"),
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


def action_list(
    replica: Replica, peers: VersionView, reading: Reading, denied: str = ""
) -> list[Action]:
    """Every verb, in a fixed order, the destructive one last; ``denied`` is why this
    person may press none of them, or empty."""
    is_out = _is_put_out(replica, peers)
    facts = peer_facts(replica, peers)
    open_ = _open_facts(reading)
    cuts = {"stop-now", "restart"}
    if replica.driver == Driver.PROCESS:
        cuts.add("remove")
    return [
        Action(
            verb=name,
            button=str(verb.button),
            effect=_effect(verb, vouches=name == "enable" and is_out),
            asks=verb.asks,
            blocked=denied
            or ("" if name == "enable" and is_out else _blocked(replica, name)),
            facts=[*facts, *(_cut_facts(reading) if name in cuts else open_)],
        )
        for name, verb in VERBS.items()
    ]


# What its requests said of it, and enabling ends.
_PUT_OUT = (Label.EJECTED, Label.HALF_OPEN, Label.QUARANTINED)


def _effect(verb: Verb, *, vouches: bool) -> str:
    if vouches:
        return _("It is put back into use at once, whatever its requests said.")
    return str(verb.effect)


def _is_put_out(replica: Replica, peers: VersionView) -> bool:
    """Whether its own requests put it out of rotation, which enabling it ends."""
    states = [view.state for view in peers.replicas if view.replica.pk == replica.pk]
    return any(state and state.label in _PUT_OUT for state in states)


def _blocked(replica: Replica, verb: str) -> str:
    if replica.removed_at is not None:
        return _("The replica was removed.")
    if (
        verb in ("start", "stop", "stop-now", "restart")
        and replica.driver != Driver.PROCESS
    ):
        return _("Sluice does not run this replica: start and stop it where it runs.")
    if verb == "start" and replica.wanted_running:
        return _("It is already wanted to run.")
    if verb in ("stop", "stop-now") and not replica.wanted_running:
        return _("It is already wanted to stand still.")
    states = {"enable": "enabled", "drain": "draining", "disable": "disabled"}
    if states.get(verb) == replica.admin_state:
        return {
            "enable": _("It is enabled already."),
            "drain": _("It is draining already."),
            "disable": _("It is disabled already."),
        }[verb]
    return ""


def peer_facts(replica: Replica, peers: VersionView) -> list[str]:
    """What a person should know before disturbing it; says unknown where it is."""
    others = [view.state for view in peers.replicas if view.replica.pk != replica.pk]
    share = _("%(version)s gets %(share)s of the requests.") % {
        "version": peers.version.name,
        "share": percent(peers.weight_bp),
    }
    if None in others:
        return [share, _("Whether others are ready is unknown.")]
    ready = sum(state is not None and state.eligible for state in others)
    if ready:
        rest = ngettext(
            "%(n)d other replica of this version is ready.",
            "%(n)d other replicas of this version are ready.",
            ready,
        ) % {"n": ready}
    else:
        rest = _("No other replica of this version is ready.")
    return [share, rest]


def _open_facts(reading: Reading) -> list[str]:
    """What runs on it now, by what the gateways say."""
    if reading.requests is None:
        return [_("How many requests run on it is unknown: gateways do not say.")]
    if not reading.requests:
        return [_("No request runs on it.")]
    count = len(reading.requests)
    return [
        ngettext(
            "%(n)d request runs on it, for %(age)d s.",
            "%(n)d requests run on it, the oldest for %(age)d s.",
            count,
        )
        % {"n": count, "age": reading.requests[0].age_s}
    ]


def _cut_facts(reading: Reading) -> list[str]:
    if not reading.requests:
        return _open_facts(reading)
    return [*_open_facts(reading), cut_text(len(reading.requests))]


def cut_text(count: int) -> str:
    """How many requests an action is going to break off."""
    words = ngettext("It cuts %(n)d request off.", "It cuts %(n)d requests off.", count)
    return words % {"n": count}


def cut_done(cut: int | None) -> str:
    """How many requests an action broke off; empty for none."""
    if cut is None:
        return _("It is unknown how many requests were cut off: gateways did not say.")
    if not cut:
        return ""
    words = ngettext("%(n)d request was cut off.", "%(n)d requests were cut off.", cut)
    return words % {"n": cut}
