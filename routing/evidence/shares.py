"""Do the shares that were drawn agree with the weights, and how sure is a share?

Three figures for three questions. The Wilson interval says where a share lies. The χ²
statistic with its p-value is good for one look. The verdict is for a check that looks
again and again, for ever: it rests on evidence that chance alone seldom makes large,
however often one looks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from math import ceil, exp, floor, inf, lgamma, log, sqrt
from typing import NamedTuple

from scipy.special import chdtrc

from routing.contracts.route import WEIGHT_TOTAL_BP

# Sound draws reach this in at most one of 10 000 routes.
ALARM_AT = 10_000.0
# Below this expected count the χ² distribution is a poor approximation (Cochran 1954).
EXPECTED_LEAST = 5
_Z95 = 1.959963984540054
# Where the evidence is larger than a float: it is told apart from what cannot be.
_LOG_MOST = 700.0


class Interval(NamedTuple):
    """Bounds of a share, as fractions of 1."""

    low: float
    high: float

    @property
    def bp(self) -> tuple[int, int]:
        """In basis points, rounded outwards."""
        return floor(self.low * WEIGHT_TOTAL_BP), ceil(self.high * WEIGHT_TOTAL_BP)


def wilson(count: int, n: int) -> Interval:
    """The 95 % score interval of a share of ``count`` in ``n`` requests; all from 0
    to 1 without any request.

    (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n), after E. B. Wilson, "Probable
    inference, the law of succession, and statistical inference", JASA 22 (1927).
    """
    if n == 0:
        return Interval(0.0, 1.0)
    share = count / n
    square = _Z95 * _Z95 / n
    middle = share + square / 2
    reach = _Z95 * sqrt(share * (1 - share) / n + square / (4 * n))
    # At the ends the bound is exact, and a rounding error would say more than is known.
    low = 0.0 if count == 0 else (middle - reach) / (1 + square)
    high = 1.0 if count == n else (middle + reach) / (1 + square)
    return Interval(low, high)


def shares_bp(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts as whole basis points that sum to 10 000, by the largest remainder, the
    earlier name first; empty without any count."""
    n = sum(counts.values())
    if n == 0:
        return {}
    parts = {name: divmod(count * WEIGHT_TOTAL_BP, n) for name, count in counts.items()}
    left = WEIGHT_TOTAL_BP - sum(whole for whole, _ in parts.values())
    ranked = sorted(parts, key=lambda name: -parts[name][1])
    return {name: whole + (name in ranked[:left]) for name, (whole, _) in parts.items()}


class ChiSquare(NamedTuple):
    """Pearson's statistic and the probability of one at least as large by chance."""

    statistic: float
    p: float


def chi_square(counts: Sequence[int], weights: Sequence[int]) -> ChiSquare | None:
    """Σ (count − n·w)² / (n·w) with one degree of freedom less than there are weights
    (K. Pearson 1900). None where it would not mean anything: fewer than two weights,
    or an expected count below ``EXPECTED_LEAST``. Weights are in basis points and
    above 0. For one look only: who looks often will see a small p sooner or later.
    """
    n = sum(counts)
    expected = [n * weight / WEIGHT_TOTAL_BP for weight in weights]
    if len(expected) < 2 or min(expected) < EXPECTED_LEAST:
        return None
    pairs = zip(counts, expected, strict=True)
    statistic = sum((count - mean) ** 2 / mean for count, mean in pairs)
    return ChiSquare(statistic, float(chdtrc(len(expected) - 1, statistic)))


def log_evidence(counts: Sequence[int], weights: Sequence[int]) -> float:
    """The natural logarithm of E, how many times better shares that are unknown
    explain the draws than the weights do.

    E = (k−1)! · Π xᵢ! / (n+k−1)! / Π wᵢ^xᵢ for k weights wᵢ that sum to 1 and n = Σ xᵢ
    draws: the likelihood under a uniform Dirichlet mixture over that under the
    weights. When the weights hold, E is a martingale that starts at 1, so by Ville's
    inequality it ever reaches A with a probability of at most 1/A, however often one
    looks (M. Lindon and A. Malek, "Anytime-valid inference for multinomial count
    data", NeurIPS 2022).
    """
    k, n = len(weights), sum(counts)
    value = lgamma(k) - lgamma(n + k)
    for count, weight in zip(counts, weights, strict=True):
        value += lgamma(count + 1) - count * log(weight / WEIGHT_TOTAL_BP)
    return value


class Agreement(enum.StrEnum):
    """``NO_WEIGHTS``: nothing is wanted. ``NOTHING_DRAWN``: nothing to judge yet.
    ``ONE_VERSION``: it has all of the weight and got every draw. ``FEW``: nothing
    speaks against the weights, yet only a gross error would show. ``HOLDS`` and
    ``FAILS`` are what they say."""

    NO_WEIGHTS = "no_weights"
    NOTHING_DRAWN = "nothing_drawn"
    ONE_VERSION = "one_version"
    FEW = "few"
    HOLDS = "holds"
    FAILS = "fails"


class Verdict(NamedTuple):
    """What the standing check says of ``n`` draws.

    ``evidence`` is E, infinite for what cannot be; ``forbidden`` are the versions of
    weight 0 that were drawn or served nevertheless.
    """

    agreement: Agreement
    n: int
    evidence: float = 1.0
    chi_square: ChiSquare | None = None
    forbidden: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        return self.agreement is Agreement.FAILS


def shares_check(
    drawn: Mapping[str, int],
    weights: Mapping[str, int],
    served: Mapping[str, int] | None = None,
) -> Verdict:
    """Whether the draws agree with the weights (basis points) by which they were made.

    It fails when E reaches ``ALARM_AT`` = 10 000, or at once when a version of weight
    0 was drawn, or ``served`` one request that nobody chose a version for. What else
    was served is not judged: it may differ by failover. Draws that agree with the
    weights fail in at most one of 10 000 routes, over any number of looks: of 200 000
    simulated routes with a look after each of 3 000 draws, 6 did at 90/10, 19 at
    33/33/34, 8 at 99/1 and 12 at 50/30/10/5/5 (20 are allowed).
    """
    n = sum(drawn.values())
    wanted = {name: weight for name, weight in weights.items() if weight > 0}
    if not wanted:
        return Verdict(Agreement.NO_WEIGHTS, n)
    forbidden = _forbidden(wanted, drawn, served or {})
    if forbidden:
        return Verdict(Agreement.FAILS, n, inf, forbidden=forbidden)
    if n == 0:
        return Verdict(Agreement.NOTHING_DRAWN, n)
    if len(wanted) == 1:
        return Verdict(Agreement.ONE_VERSION, n)
    counts = [drawn.get(name, 0) for name in wanted]
    evidence = exp(min(log_evidence(counts, [*wanted.values()]), _LOG_MOST))
    chi = chi_square(counts, [*wanted.values()])
    if evidence >= ALARM_AT:
        return Verdict(Agreement.FAILS, n, evidence, chi)
    agreement = Agreement.HOLDS if chi else Agreement.FEW
    return Verdict(agreement, n, evidence, chi)


def _forbidden(
    wanted: Mapping[str, int], *counts: Mapping[str, int]
) -> tuple[str, ...]:
    found = {
        name
        for count in counts
        for name, n in count.items()
        if n > 0 and name not in wanted
    }
    return tuple(sorted(found))
