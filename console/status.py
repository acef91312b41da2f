"""The words for what is: one mark for every state, used by every page.

A mark is a token (which decides shape and colour), a word, and a sentence that
says why. Colour never carries a state alone.
"""

from __future__ import annotations

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext, pgettext_lazy

from cluster.health import Cause, Label, State
from routing.selectors.fleet import ModelView, VersionView

TOKENS = ("ok", "info", "warn", "err", "hold", "idle", "stale", "off")


class Mark(NamedTuple):
    token: str
    word: str
    sentence: str = ""


_LABELS = {
    Label.REGISTERED: ("idle", pgettext_lazy("replica state", "Registered")),
    Label.STARTING: ("info", pgettext_lazy("replica state", "Starting")),
    Label.LOADING: ("info", pgettext_lazy("replica state", "Loading")),
    Label.WARMING: ("info", pgettext_lazy("replica state", "Warming up")),
    Label.HEALTHY: ("ok", pgettext_lazy("replica state", "Healthy")),
    Label.SUSPECT: ("warn", pgettext_lazy("replica state", "Suspect")),
    Label.EJECTED: ("err", pgettext_lazy("replica state", "Ejected")),
    Label.HALF_OPEN: ("warn", pgettext_lazy("replica state", "On trial")),
    Label.QUARANTINED: ("err", pgettext_lazy("replica state", "Quarantined")),
    Label.UNREACHABLE: ("stale", pgettext_lazy("replica state", "Unreachable")),
    Label.DOWN: ("err", pgettext_lazy("replica state", "Down")),
    Label.FAILED: ("err", pgettext_lazy("replica state", "Failed")),
    Label.DRAINING: ("hold", pgettext_lazy("replica state", "Draining")),
    Label.DISABLED: ("off", pgettext_lazy("replica state", "Disabled")),
    Label.STOPPING: ("info", pgettext_lazy("replica state", "Stopping")),
    Label.STOPPED: ("off", pgettext_lazy("replica state", "Stopped")),
}

_CAUSES = {
    Cause.NOT_PROBED: gettext_lazy("No probe has reached it yet."),
    Cause.ADMIN_DISABLED: gettext_lazy("An admin disabled it: it gets no requests."),
    Cause.ADMIN_DRAINING: gettext_lazy(
        "An admin drains it: it finishes what runs and gets nothing new."
    ),
    Cause.PROCESS_STOPPED: gettext_lazy("Its process is stopped, as wanted."),
    Cause.PROCESS_STOPPING: gettext_lazy("Its process is being stopped."),
    Cause.PROCESS_STARTING: gettext_lazy("Its process is being started."),
    Cause.PROCESS_EXITED: gettext_lazy("Its process ended by itself."),
    Cause.START_FAILED: gettext_lazy("Its process could not be started."),
    Cause.PROBE_LOADING: gettext_lazy("It answers, and still loads the model."),
    Cause.PROBE_WARMING: gettext_lazy(
        "It answers, and has to complete a first request before it gets others."
    ),
    Cause.WARMUP_FAILED: gettext_lazy(
        "It answers, but its first request failed; that is tried again."
    ),
    Cause.PROBE_MISSED: gettext_lazy(
        "It missed the last probes, too few yet to call it down."
    ),
    Cause.DEEP_PROBE_FAILED: gettext_lazy(
        "It answers probes, but completed no request that was tried."
    ),
    Cause.NODE_SILENT: gettext_lazy(
        "Nothing is heard of its node; the requests that it gets decide."
    ),
    Cause.FAILURES_IN_A_ROW: gettext_lazy("Several requests to it failed in a row."),
    Cause.FAILURE_SHARE: gettext_lazy("Too many of the requests to it failed."),
    Cause.TRIAL_FAILED: gettext_lazy("The request that tried it again failed."),
    Cause.HANG: gettext_lazy("It holds requests and sends nothing."),
    Cause.PASSIVE: gettext_lazy("Requests to it went wrong."),
    Cause.PROBE_OK: gettext_lazy("The last probe was answered."),
    Cause.PROBE_FAILED: gettext_lazy("The last probes failed."),
}

# Filters of lists, in the order of trouble.
LABELS = tuple(
    sorted(
        _LABELS,
        key=lambda label: (
            "err",
            "stale",
            "warn",
            "hold",
            "info",
            "idle",
            "off",
            "ok",
        ).index(_LABELS[label][0]),
    )
)


def label_mark(label: Label) -> Mark:
    token, word = _LABELS[label]
    return Mark(token, str(word))


def state_mark(state: State | None) -> Mark:
    """The mark of a replica's state; None is what nobody can know without Redis."""
    if state is None:
        return Mark(
            "stale",
            _("Unknown"),
            _("Redis does not answer, and the live state lies there."),
        )
    token, word = _LABELS[state.label]
    sentence = " ".join([str(_CAUSES[state.cause]), *map(str, _remarks(state))])
    if state.panic and token == "ok":
        token = "warn"
    return Mark(token, str(word), sentence)


_REMARKS = (
    gettext_lazy("It stays in use: too few others are left."),
    gettext_lazy("It gets one request at a time, to see."),
    gettext_lazy("It is chosen only when no other is there."),
    gettext_lazy("Its route is short of replicas and uses doubtful ones."),
    gettext_lazy("Its engine says that it is full."),
)


def _remarks(state: State) -> list[Promise]:
    """What a person should know of a state beside its cause."""
    holds = (
        state.kept,
        state.trial,
        state.last_choice,
        state.panic,
        state.saturated,
    )
    return [words for words, so in zip(_REMARKS, holds, strict=True) if so]


def transition_mark(label: str, cause: str) -> Mark:
    """The mark of a state on record; codes of another release stay codes."""
    known_label = label in Label.__members__.values()
    known_cause = cause in Cause.__members__.values()
    if not known_label:
        return Mark("idle", label, cause)
    token, word = _LABELS[Label(label)]
    return Mark(token, str(word), str(_CAUSES[Cause(cause)]) if known_cause else cause)


def removed_mark() -> Mark:
    """A replica that was taken out for good."""
    return Mark(
        "off",
        pgettext("replica state", "Removed"),
        _("This replica was removed: it gets no requests, and its record stays."),
    )


def version_mark(view: VersionView) -> Mark:
    """Whether a version could serve the share that it has."""
    if view.ready is None:
        return Mark("stale", _("Unknown"), _("Redis does not answer."))
    if not view.replicas:
        return Mark("idle", _("No replica"), _("It has no replica."))
    if view.ready == 0:
        token = "err" if view.weight_bp else "idle"
        return Mark(token, _("Not ready"), _("None of its replicas is ready."))
    if view.ready < view.wanted:
        return Mark(
            "warn",
            _("Degraded"),
            _("%(ready)d of %(wanted)d replicas are ready.")
            % {"ready": view.ready, "wanted": view.wanted},
        )
    return Mark("ok", _("Ready"), _("All wanted replicas are ready."))


def model_mark(view: ModelView) -> Mark:
    """The worst that its versions with a share have to say."""
    if view.ready is None:
        return Mark("stale", _("Unknown"), _("Redis does not answer."))
    serving = [version for version in view.versions if version.weight_bp]
    if not serving:
        return Mark("idle", _("No version"), _("It has no version yet."))
    if not any(version.replicas for version in serving):
        return Mark(
            "idle", _("No replica"), _("No version with a share has a replica.")
        )
    if not any(version.ready for version in serving):
        return Mark("err", _("Down"), _("No version with a share has a ready replica."))
    ill = [v for v in serving if not v.ready or v.ready < v.wanted]
    if ill:
        return Mark("warn", _("Degraded"), _version_sentence(ill[0]))
    return Mark("ok", _("Healthy"), _("Every version with a share is ready."))


def _version_sentence(view: VersionView) -> str:
    return _("%(version)s: %(ready)d of %(wanted)d replicas are ready.") % {
        "version": view.version.name,
        "ready": view.ready or 0,
        "wanted": max(view.wanted, 1),
    }


TROUBLE = ("err", "stale", "warn", "hold", "info", "idle", "off", "ok")


def trouble_rank(mark: Mark) -> int:
    """Sort key that puts trouble first."""
    return TROUBLE.index(mark.token)
