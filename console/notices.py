"""What is wrong beside the traffic, in words: the banner of every page and the warnings
of ``/readyz`` say the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.templatetags.sluice import age_text
from routing.models import TelemetrySource
from routing.selectors import Alarm, Telemetry, telemetry_state

_GATEWAYS_NAMED = 5


class Notice(NamedTuple):
    """``title`` says what is so, to anyone; ``text`` what that means and, to people who
    are logged in, what is known of it. ``token`` is that of a mark."""

    code: str
    token: str
    title: str
    text: str


def notices() -> list[Notice]:
    """One for each alarm, see ``routing.selectors.telemetry``. Never raises because
    Redis or the database is away."""
    state = telemetry_state()
    return [_WORDS[alarm](state) for alarm in state.alarms]


def _redis(state: Telemetry) -> Notice:
    return Notice(
        "redis",
        "warn",
        _("Redis does not answer."),
        _(
            "States and gateways are unknown here; gateways keep serving from what "
            "they last knew. Changes are kept and published when Redis is back."
        ),
    )


def _database(state: Telemetry) -> Notice:
    return Notice(
        "database",
        "err",
        _("The database does not take the outcomes of requests."),
        _(
            "It says: %(why)s. Traffic goes on; outcomes and counts wait in Redis and "
            "in the gateways until the database takes them, as far as there is room."
        )
        % {"why": state.trouble.rstrip(".\n ")},
    )


def _lag(state: Telemetry) -> Notice:
    return Notice(
        "outcomes_late",
        "warn",
        _("Outcomes of requests wait to be stored, the oldest for %(n)d s.")
        % {"n": state.lag_s or 0},
        _(
            "Requests and usage are shown late. Nothing is lost as long as Redis has "
            "room for them; see whether a worker runs."
        ),
    )


def _lost(state: Telemetry) -> Notice:
    return Notice(
        "outcomes_lost",
        "warn",
        ngettext(
            "%(n)d outcome of a request was lost, %(ago)s.",
            "%(n)d outcomes of requests were lost, the last %(ago)s.",
            state.lost,
        )
        % {"n": state.lost, "ago": _ago(state.lost_at)},
        _(
            "They are missing from the list of requests; counts and usage travel "
            "apart from them. What each gateway lost since its start: %(gateways)s."
        )
        % {"gateways": _named(state.sources, lambda source: source.lost)},
    )


def _unfinished(state: Telemetry) -> Notice:
    return Notice(
        "requests_unfinished",
        "warn",
        ngettext(
            "A gateway ended while %(n)d request was open.",
            "Gateways ended while %(n)d requests were open.",
            state.unfinished,
        )
        % {"n": state.unfinished},
        _(
            "How they ended is not known, and what was counted in the last second may "
            "be missing. Gateways: %(gateways)s."
        )
        % {"gateways": _named(state.sources, lambda source: source.unfinished)},
    )


_WORDS: dict[Alarm, Callable[[Telemetry], Notice]] = {
    Alarm.REDIS: _redis,
    Alarm.DATABASE: _database,
    Alarm.LAG: _lag,
    Alarm.LOST: _lost,
    Alarm.UNFINISHED: _unfinished,
}


def _ago(moment: datetime | None) -> str:
    if moment is None:
        return _("now")
    return age_text((timezone.now() - moment).total_seconds())


def _named(
    sources: tuple[TelemetrySource, ...], figure: Callable[[TelemetrySource], int]
) -> str:
    """Ids with their figures, the worst first and not too many."""
    told = sorted((s for s in sources if figure(s)), key=figure, reverse=True)
    words = [f"{source.gateway} ({figure(source)})" for source in told]
    if len(words) > _GATEWAYS_NAMED:
        words[_GATEWAYS_NAMED:] = [f"+{len(words) - _GATEWAYS_NAMED}"]
    return ", ".join(words)
