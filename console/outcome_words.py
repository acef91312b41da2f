"""What happened to a request, in words."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from cluster.selectors.names import name_possible
from console.status import Mark
from console.waterfall import Kind
from routing.balance.queue_aware import FULL
from routing.contracts.outcome import Attempt, Choice, Ending, Outcome, Tier, Why

ENDINGS: dict[str, tuple[str, Promise]] = {
    Ending.COMPLETED: ("ok", pgettext_lazy("ending", "Completed")),
    Ending.REFUSED: ("warn", pgettext_lazy("ending", "Refused")),
    Ending.UPSTREAM_FAILED: ("err", pgettext_lazy("ending", "Replica failed")),
    Ending.TIMED_OUT: ("err", pgettext_lazy("ending", "Timed out")),
    Ending.BROKEN: ("err", pgettext_lazy("ending", "Broke off")),
    Ending.CLIENT_LEFT: ("idle", pgettext_lazy("ending", "Client left")),
}

# What a code of the gateway means, for people who run it.
_CODES = {
    "invalid_request": gettext_lazy("The request was malformed."),
    "context_length_exceeded": gettext_lazy(
        "The input is longer than the route or the engine takes."
    ),
    "invalid_api_key": gettext_lazy(
        "It had no key, or one that is unknown, expired, revoked or of a disabled team."
    ),
    "ip_not_allowed": gettext_lazy("The key may not be used from this address."),
    "model_not_allowed": gettext_lazy("The key may not call this model."),
    "version_not_allowed": gettext_lazy("The key may not choose a version."),
    "model_not_found": gettext_lazy("There is no such model."),
    "not_found": gettext_lazy("There is nothing at this path."),
    "method_not_allowed": gettext_lazy("The path does not know the method."),
    "request_too_large": gettext_lazy("Its body was over the limit."),
    "rate_limit_exceeded": gettext_lazy("A rate limit was reached."),
    "insufficient_quota": gettext_lazy("The budget was used up."),
    "queue_full": gettext_lazy("The queue of its route was full."),
    "queue_timeout": gettext_lazy("It waited too long in the queue."),
    "no_healthy_replica": gettext_lazy(
        "No version with a share had a replica that could serve it."
    ),
    "engine_refused": gettext_lazy("The engine refused it, and its answer was passed."),
    "upstream_saturated": gettext_lazy("Every replica that was tried was full."),
    "upstream_auth": gettext_lazy("The engine refused the gateway's credential."),
    "upstream_error": gettext_lazy("The replica failed."),
    "upstream_timeout": gettext_lazy("The replica took too long."),
    "auth_unavailable": gettext_lazy("Nobody could say whether its key is good."),
    "draining": gettext_lazy("The gateway was shutting down."),
    "internal_error": gettext_lazy("The gateway itself failed."),
    "client_disconnected": gettext_lazy("The client left before the end."),
}

_REASONS = {
    "connect": gettext_lazy("no connection"),
    "reset": gettext_lazy("the connection broke"),
    "in_band": gettext_lazy("the engine sent an error instead of an answer"),
    "broken": gettext_lazy("its answer made no sense"),
    "timeout": gettext_lazy("it took too long"),
    "saturated": gettext_lazy("it said that it is full"),
    "auth": gettext_lazy("it refused the gateway's credential"),
    "status": gettext_lazy("it answered with an error"),
    "refused": gettext_lazy("it refused the request"),
}

_TIERS = {
    Tier.READY: gettext_lazy("%(of)d of %(total)d replicas of %(version)s were ready."),
    Tier.ELIGIBLE: gettext_lazy(
        "Every ready replica of %(version)s had just refused a connection; %(of)d of "
        "%(total)d were left to try all the same."
    ),
    Tier.UNKNOWN: gettext_lazy(
        "No replica of %(version)s was known to be up; %(of)d of %(total)d had not "
        "been probed yet."
    ),
    Tier.SUSPECT: gettext_lazy(
        "No replica of %(version)s was above doubt; %(of)d of %(total)d seemed to hang."
    ),
    Tier.OUT: gettext_lazy(
        "No replica of %(version)s was left but ejected ones: %(of)d of %(total)d."
    ),
}

_KINDS = {
    Kind.RECEIVE: gettext_lazy("Receive the request"),
    Kind.KEY: gettext_lazy("Check the key"),
    Kind.ROUTING: gettext_lazy("Route it"),
    Kind.QUEUE: gettext_lazy("Wait in the queue"),
    Kind.CONNECT: gettext_lazy("Connect"),
    Kind.WAIT: gettext_lazy("Wait for the first byte"),
    Kind.PREFILL: gettext_lazy("Prefill: first byte to first content"),
    Kind.DECODE: gettext_lazy("Decode: first content to last byte"),
    Kind.DELIVERY: gettext_lazy("Deliver the rest"),
    Kind.GAP: gettext_lazy("Not accounted for"),
}


@dataclass(frozen=True)
class AttemptView:
    """An attempt with the sentences that say why its replica, and how it ended."""

    number: int
    attempt: Attempt
    mark: Mark
    why: list[str]

    @property
    def has_page(self) -> bool:
        return name_possible(self.attempt.replica)


def ending_mark(ending: str) -> Mark:
    """Endings of another release stay as they are written."""
    token, word = ENDINGS.get(ending, ("idle", ending))
    return Mark(token, str(word))


def kind_word(kind: Kind) -> str:
    return str(_KINDS[kind])


def code_sentence(code: str) -> str:
    return str(_CODES.get(code, ""))


def duration_text(ms: float | None) -> str:
    """Milliseconds below a second, else seconds; a dash for what never came."""
    if ms is None:
        return "–"
    if ms >= 1000:
        return f"{ms / 1000:,.2f}\u00a0s"
    return f"{ms:.0f}\u00a0ms" if ms >= 100 else f"{ms:.3g}\u00a0ms"


def verdict(outcome: Outcome) -> Mark:
    """The whole story in one or a few sentences."""
    mark = ending_mark(outcome.ending)
    after = duration_text(outcome.duration_ms)
    word = _("%(ending)s after %(time)s") % {"ending": mark.word, "time": after}
    return Mark(mark.token, word, " ".join(_story(outcome)))


def _story(outcome: Outcome) -> list[str]:
    told = []
    if sentence := code_sentence(outcome.code):
        told.append(sentence)
    if outcome.replica and outcome.ending == Ending.COMPLETED:
        told.append(
            _("%(version)s on %(replica)s served it.")
            % {"version": outcome.version, "replica": outcome.replica}
        )
    failed = sum(bool(attempt.error) for attempt in outcome.attempts)
    if failed:
        told.append(
            ngettext("%(n)d attempt failed.", "%(n)d attempts failed.", failed)
            % {"n": failed}
        )
    if outcome.first_content_ms is not None:
        told.append(
            _("The first content came after %(time)s.")
            % {"time": duration_text(outcome.first_content_ms)}
        )
    elif outcome.attempts:
        told.append(_("No content came."))
    return told


def draw_sentence(outcome: Outcome) -> str:
    """Which version was drawn, with which probability, and what became of that."""
    if not outcome.first_version:
        return _("It did not come to the draw of a version.")
    names = {
        "first": outcome.first_version,
        "version": outcome.version,
        "share": f"{outcome.first_probability * 100:g}\u00a0%",
    }
    if outcome.chosen:
        sentence = _("The client chose %(first)s itself.")
    elif outcome.version not in ("", outcome.first_version):
        sentence = _(
            "%(first)s was drawn with a probability of %(share)s. No replica of it "
            "could take the request, so it went to %(version)s."
        )
    elif outcome.version and outcome.ending == Ending.COMPLETED:
        sentence = _("%(first)s was drawn with a probability of %(share)s, and served.")
    else:
        sentence = _("%(first)s was drawn with a probability of %(share)s.")
    return sentence % names


def attempt_views(outcome: Outcome) -> list[AttemptView]:
    return [
        AttemptView(number, attempt, _attempt_mark(attempt), _why(attempt))
        for number, attempt in enumerate(outcome.attempts, 1)
    ]


def _attempt_mark(attempt: Attempt) -> Mark:
    if not attempt.error:
        return Mark("ok", _("Served"))
    return Mark("err", _("Failed"), str(_REASONS.get(attempt.error, "")))


def _why(attempt: Attempt) -> list[str]:
    choice = attempt.choice
    if choice is None:
        return [_("The gateway did not say why.")]
    counts = {"of": choice.of, "total": choice.total, "version": attempt.version}
    if choice.why == Why.TRIAL:
        return [
            _(
                "It was ejected, and this request was the one that tries whether it "
                "works again."
            )
        ]
    return [str(_TIERS[choice.tier]) % counts, _comparison(attempt.replica, choice)]


_COMPARISONS = {
    Why.ONLY: gettext_lazy("%(replica)s was the only one to take."),
    Why.TIE: gettext_lazy(
        "Two were drawn at random and cost the same, %(cost)s: %(replica)s was "
        "taken, %(other)s not."
    ),
    Why.LOWER_COST: gettext_lazy(
        "Two were drawn at random: %(replica)s cost %(cost)s and %(other)s "
        "%(other_cost)s, and the cheaper one was taken."
    ),
    Why.LEAST: gettext_lazy(
        "Of all, %(replica)s cost the least, %(cost)s; the next one was %(other)s with "
        "%(other_cost)s."
    ),
    Why.TURN: gettext_lazy("It was the turn of %(replica)s."),
    Why.HASH: gettext_lazy(
        "Requests of its kind stay with %(replica)s, by a consistent hash."
    ),
    Why.OVERFLOW: gettext_lazy(
        "Where requests of its kind stay had too much to do: %(replica)s is next by "
        "the hash."
    ),
    Why.LOWER_PRESSURE: gettext_lazy(
        "Two were drawn at random, and the engine of %(replica)s has more room: "
        "pressure %(cost)s against %(other_cost)s at %(other)s."
    ),
    Why.PREFIX: gettext_lazy(
        "%(replica)s was lately sent the longest part of what this prompt begins with."
    ),
}


def _cost(value: float) -> str:
    return _("unknown") if value >= FULL else f"{value:.3g}"


def _comparison(replica: str, choice: Choice) -> str:
    values = {
        "replica": replica,
        "other": choice.other,
        "cost": _cost(choice.cost),
        "other_cost": _cost(choice.other_cost),
    }
    return str(_COMPARISONS[choice.why]) % values
