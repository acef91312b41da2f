"""The third bar and the standing check, in words and as drawing numbers.

Pages, API, metrics and ``/readyz`` tell the same, because they read the same values
(``routing.selectors.measured``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import redis
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.history import percent
from console.shares import Slice, slices
from console.status import Mark
from routing.contracts.route import WEIGHT_TOTAL_BP
from routing.evidence.shares import Agreement, ChiSquare, Verdict, wilson
from routing.selectors.measured import (
    GatewayCheck,
    RouteCheck,
    RouteMeasured,
    Split,
    VersionShare,
    check_list,
    split_list,
)
from routing.selectors.telemetry import outcomes_lag_s

# What waits longer than this to be counted is told; the ingest runs every second.
LAG_TOLD_S = 10
# Below so many requests the page says that the intervals are wide.
FEW = 100


@dataclass(frozen=True)
class Whisker:
    """The interval of the border between two slices; SVG percentages."""

    low: str
    high: str


@dataclass(frozen=True)
class MeasuredBar:
    """``remarks`` are sentences on what the bar shows or does not show yet."""

    measured: RouteMeasured
    slices: list[Slice]
    whiskers: list[Whisker]
    label: str
    remarks: list[str]
    stale: str


def measured_bar(measured: RouteMeasured) -> MeasuredBar:
    """The bar of what was served, on the scale of the other two."""
    parts = slices((share.version, share.share_bp) for share in measured.shares)
    shares = ", ".join(f"{part.name} {part.percent}" for part in parts if part.bp)
    return MeasuredBar(
        measured=measured,
        slices=parts,
        whiskers=_whiskers(measured.shares),
        label=_("Measured: %(shares)s") % {"shares": shares},
        remarks=[_since(measured), *_failovers(measured)],
        stale=_stale(),
    )


def _whiskers(shares: list[VersionShare]) -> list[Whisker]:
    """One where a slice ends and another begins: the interval of the sum so far."""
    n = sum(share.requests for share in shares)
    shown = [share for share in shares if share.wanted_bp or share.requests]
    sums = accumulate(share.requests for share in shown)
    found = []
    for count, _following in pairwise(sums):
        low, high = wilson(count, n)
        found.append(Whisker(f"{low * 100:.3f}%", f"{high * 100:.3f}%"))
    return found


def interval_text(share: VersionShare) -> str:
    return _("%(low)s to %(high)s") % {
        "low": percent(share.low_bp),
        "high": percent(share.high_bp),
    }


def _since(measured: RouteMeasured) -> str:
    values = {"n": f"{measured.n:,}", "generation": measured.generation}
    if not measured.n:
        return _("Nothing was served yet by generation %(generation)d.") % values
    text = ngettext(
        "%(n)s request since generation %(generation)d was applied.",
        "%(n)s requests since generation %(generation)d was applied.",
        measured.n,
    )
    parts = [text % values]
    if measured.n < FEW:
        parts.append(_("They are few: the true shares may lie far off."))
    return " ".join(parts)


def _failovers(measured: RouteMeasured) -> list[str]:
    """Why what was served differs from what was drawn, where it does."""
    sentence = _(
        "%(share)s of the draws for %(drawn)s (%(n)s of %(of)s) were served by "
        "%(served)s: no ready replica of %(drawn)s was left."
    )
    return [
        sentence
        % {
            "share": _percent(failover.requests / failover.of),
            "drawn": failover.drawn,
            "served": failover.served,
            "n": f"{failover.requests:,}",
            "of": f"{failover.of:,}",
        }
        for failover in measured.failovers
    ]


def _stale() -> str:
    """Why newer requests may be missing; empty when they are not."""
    lag_s = outcomes_lag_s()
    if lag_s is None:
        return _("Redis does not answer: newer requests are not counted.")
    if lag_s < LAG_TOLD_S:
        return ""
    return _("The requests of the last %(n)d s are not counted yet.") % {"n": lag_s}


def _percent(share: float) -> str:
    """A measured fraction with as many digits as help."""
    return f"{share * 100:.3g}\u00a0%"


# The standing check ----------------------------------------------------------------


def checks(splits: Sequence[Split]) -> dict[str, RouteCheck] | None:
    """By model; None while Redis is away."""
    try:
        return check_list(splits)
    except redis.RedisError:
        return None


def check_mark(check: RouteCheck | None) -> Mark:
    """Whether the gateways draw by the weights of a route."""
    if check is None:
        return Mark("stale", _("Not checked"), _("Redis does not answer."))
    n = f"{check.together.n:,}"
    match check.agreement:
        case Agreement.FAILS:
            return Mark("err", _("Weights do not hold"), _failing_sentence(check))
        case Agreement.HOLDS:
            return Mark("ok", _("Weights hold"), _holding_sentence(check))
        case Agreement.ONE_VERSION:
            (name,) = (name for name, bp in check.weights.items() if bp)
            sentence = _("All draws so far, %(n)s, were of %(version)s, as wanted.")
            return Mark("ok", _("Weights hold"), sentence % {"n": n, "version": name})
        case Agreement.FEW:
            sentence = _("%(n)s draws so far: only a gross error would show.")
            return Mark("idle", _("Too few to check"), sentence % {"n": n})
        case _:
            sentence = _("No version was drawn yet by this generation.")
            return Mark("idle", _("Nothing to check"), sentence)


def _holding_sentence(check: RouteCheck) -> str:
    chi = check.together.chi_square
    text = ngettext(
        "%(n)s draws by %(gateways)d gateway agree with the weights: %(figures)s.",
        "%(n)s draws by %(gateways)d gateways agree with the weights: %(figures)s.",
        len(check.gateways),
    )
    return text % {
        "n": f"{check.together.n:,}",
        "gateways": len(check.gateways),
        "figures": figures_text(chi) if chi else "–",
    }


def figures_text(chi: ChiSquare) -> str:
    p = "p < 0.001" if chi.p < 0.001 else f"p = {chi.p:.3f}"
    return f"χ² = {chi.statistic:.2f}, {p}"


def _failing_sentence(check: RouteCheck) -> str:
    if not check.failing:
        who = _("All gateways together")
        return _deviation(who, check.drawn, check.together, check.weights)
    each = check.failing[0]
    assert each.verdict is not None
    who = _("Gateway %(id)s") % {"id": each.gateway}
    return _deviation(who, each.drawn, each.verdict, check.weights)


def _deviation(
    who: str, drawn: dict[str, int], verdict: Verdict, weights: dict[str, int]
) -> str:
    """Which version got what it must not, or is furthest from its weight."""
    if verdict.forbidden:
        return _("%(who)s: %(version)s got requests, and its weight is 0.") % {
            "who": who,
            "version": verdict.forbidden[0],
        }
    n = verdict.n

    def distance(name: str) -> tuple[int, int]:
        off = abs(drawn.get(name, 0) * WEIGHT_TOTAL_BP - weights[name] * n)
        # As far off from less is the more telling.
        return off, -weights[name]

    worst = max(weights, key=distance)
    return _(
        "%(who)s: %(version)s was drawn for %(share)s of %(n)s requests; "
        "%(wanted)s is wanted."
    ) % {
        "who": who,
        "version": worst,
        "share": _percent(drawn.get(worst, 0) / n),
        "n": f"{n:,}",
        "wanted": percent(weights[worst]),
    }


def gateway_marks(found: Collection[RouteCheck]) -> dict[str, Mark]:
    """By gateway: whether it draws by the weights of every route."""
    judged: dict[str, list[tuple[str, GatewayCheck]]] = {}
    for check in found:
        for each in check.gateways:
            judged.setdefault(each.gateway, []).append((check.model, each))
    return {gateway: _gateway_mark(routes) for gateway, routes in judged.items()}


def _gateway_mark(routes: list[tuple[str, GatewayCheck]]) -> Mark:
    failing = [model for model, each in routes if each.verdict and each.verdict.fails]
    if failing:
        return Mark("err", _("Weights do not hold"), ", ".join(failing))
    n = sum(each.verdict.n for _model, each in routes if each.verdict)
    if not n:
        return Mark("idle", _("Nothing to check"))
    text = ngettext("%(text)s draw", "%(text)s draws", n)
    return Mark("ok", _("Weights hold"), text % {"text": f"{n:,}"})


def share_warnings() -> list[tuple[str, str]]:
    """A code and a sentence, in English, for each route whose weights do not hold.

    Nothing while Redis is away: that is told by whoever asks Redis.
    """
    found = checks(split_list()) or {}
    with translation.override("en"):
        return [
            ("share_check", f"{check.model}: {check_mark(check).sentence}")
            for check in found.values()
            if check.fails
        ]
