"""What was served of a route, and whether its gateways draw by its weights.

Two sources, on purpose. The shares are those of the requests that ended, counted by
every gateway since the generation in force was applied: what users got. The standing
check holds the draws of each live gateway against the weights: a request counts there
when it is drawn, so that no version is accused for being slow, and a failover, which
may move what is served, changes nothing. Requests whose client chose the version count
in neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import msgspec
from django.db.models import OuterRef, Subquery, Sum
from django.utils import timezone

from cluster.live import redis_client
from cluster.models import Model
from routing.contracts import names
from routing.contracts.draws import RouteDraws, draws_decode
from routing.evidence.shares import Agreement, Verdict, shares_bp, shares_check, wilson
from routing.models import (
    GenerationServed,
    GenerationWeight,
    Revision,
    Route,
    TelemetryCursor,
    TrafficMinute,
)
from routing.selectors.gateways import gateway_list

_RATE_MINUTES = 5


@dataclass(frozen=True)
class Split:
    """The generation in force of one route. ``weights`` holds every version of the
    model in order, in basis points; ``created`` is the model's Unix second and
    ``epoch`` that of the newest revision."""

    model: str
    epoch: int
    created: int
    generation: int
    weights: dict[str, int]


@dataclass(frozen=True)
class VersionShare:
    """What one version served, with the 95 % interval of its share; basis points."""

    version: str
    wanted_bp: int
    requests: int
    share_bp: int
    low_bp: int
    high_bp: int


@dataclass(frozen=True)
class Failover:
    """Of the draws of one version, ``of`` that reached a replica, another version
    served so many ``requests``."""

    drawn: str
    served: str
    requests: int
    of: int


@dataclass(frozen=True)
class RouteMeasured:
    """What all gateways served by the generation in force, ``n`` requests."""

    model: str
    generation: int
    n: int
    shares: list[VersionShare]
    failovers: list[Failover]


@dataclass(frozen=True)
class GatewayCheck:
    """The draws of one live gateway; ``verdict`` is None while it does not draw by
    the generation in force, or does not say."""

    gateway: str
    drawn: dict[str, int]
    verdict: Verdict | None


@dataclass(frozen=True)
class RouteCheck:
    """The draws of all live gateways against the weights of one route."""

    model: str
    generation: int
    weights: dict[str, int]
    gateways: list[GatewayCheck]
    drawn: dict[str, int]
    together: Verdict

    @property
    def failing(self) -> list[GatewayCheck]:
        return [each for each in self.gateways if each.verdict and each.verdict.fails]

    @property
    def fails(self) -> bool:
        """Whether one of the gateways, or all together, draw otherwise."""
        return self.together.fails or bool(self.failing)

    @property
    def agreement(self) -> Agreement:
        return Agreement.FAILS if self.fails else self.together.agreement

    @property
    def evidence(self) -> float:
        """The largest E among all that were judged."""
        verdicts = [each.verdict for each in self.gateways if each.verdict]
        return max(verdict.evidence for verdict in [self.together, *verdicts])


def split_list(*, model: str = "") -> list[Split]:
    """Every model by name, or the one that ``model`` names; generation 0 where its
    route is still to be made."""
    newest = Revision.objects.order_by("-number").values("epoch")[:1]
    weight = GenerationWeight.objects.filter(
        version=OuterRef("versions"),
        generation__route=OuterRef("route"),
        generation__number=OuterRef("route__generation"),
    ).values("weight_bp")[:1]
    models = Model.objects.filter(name=model) if model else Model.objects.all()
    rows = models.annotate(epoch=Subquery(newest), weight=Subquery(weight))
    found: dict[str, Split] = {}
    for name, epoch, created, generation, version, weight_bp in rows.order_by(
        "name", "versions__id"
    ).values_list(
        *("name", "epoch", "created_at", "route__generation"),
        *("versions__name", "weight"),
    ):
        if name not in found:
            second = int(created.timestamp())
            found[name] = Split(name, epoch or 0, second, generation or 0, {})
        if version is not None:
            found[name].weights[version] = weight_bp or 0
    return list(found.values())


# How many ------------------------------------------------------------------------


def draws_per_minute(*, model: str) -> float | None:
    """The requests whose version was drawn, over the last five whole minutes; None
    when nothing was ever counted."""
    until = timezone.now().replace(second=0, microsecond=0)
    rows = TrafficMinute.objects.filter(
        minute__gte=until - timedelta(minutes=_RATE_MINUTES), minute__lt=until
    )
    drawn = rows.filter(model=model, chosen=False).exclude(first_version="")
    n = drawn.aggregate(n=Sum("requests"))["n"]
    if n is None and not TelemetryCursor.objects.filter(moved_at__isnull=False):
        return None
    return (n or 0) / _RATE_MINUTES


def served_by_generation(*, model: str, numbers: Iterable[int]) -> dict[int, int]:
    """The requests that reached a replica, by generation; what a client chose the
    version of is not among them."""
    rows = GenerationServed.objects.filter(model=model, generation__in=list(numbers))
    rows = rows.exclude(version="").order_by()
    sums = rows.values_list("generation").annotate(n=Sum("requests"))
    return dict(sums)


# Shares ---------------------------------------------------------------------------


def measured_list(splits: Sequence[Split]) -> dict[str, RouteMeasured]:
    """By model, in one query."""
    counts: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    rows = _served(splits).values("model", "first_version", "version")
    for row in rows.annotate(n=Sum("requests")).order_by("first_version", "version"):
        counts[row["model"]][row["first_version"], row["version"]] = row["n"]
    return {split.model: _measured(split, counts[split.model]) for split in splits}


def _served(splits: Sequence[Split]) -> Any:
    """The rows of the generations in force, of requests that reached a replica."""
    current = Route.objects.filter(model__name=OuterRef("model")).values("generation")
    rows = GenerationServed.objects.filter(generation=Subquery(current))
    rows = rows.exclude(version="").filter(requests__gt=0)
    return rows.filter(model=splits[0].model) if len(splits) == 1 else rows


def _measured(split: Split, counts: Mapping[tuple[str, str], int]) -> RouteMeasured:
    served: Counter[str] = Counter(dict.fromkeys(split.weights, 0))
    drawn: Counter[str] = Counter()
    for (first, version), requests in counts.items():
        served[version] += requests
        drawn[first] += requests
    n = served.total()
    bp = shares_bp(served)
    return RouteMeasured(
        model=split.model,
        generation=split.generation,
        n=n,
        shares=[
            VersionShare(
                version,
                split.weights.get(version, 0),
                requests,
                bp.get(version, 0),
                *wilson(requests, n).bp,
            )
            for version, requests in served.items()
        ],
        failovers=[
            Failover(first, version, requests, drawn[first])
            for (first, version), requests in counts.items()
            if first != version
        ],
    )


# The standing check ---------------------------------------------------------------


def check_list(splits: Sequence[Split]) -> dict[str, RouteCheck]:
    """By model, in one query. May raise RedisError: without Redis nobody here knows
    what the gateways draw."""
    draws = _draws_read()
    forbidden = _forbidden(splits, draws)
    return {split.model: _check(split, draws, forbidden) for split in splits}


def _draws_read() -> dict[str, dict[str, RouteDraws] | None]:
    """By live gateway and model; None for a gateway that does not say."""
    ids = [record.id for record in gateway_list()]
    if not ids:
        return {}
    bodies = redis_client().mget([names.gateway_draws(id_) for id_ in ids])
    found = zip(ids, cast("list[bytes | None]", bodies), strict=True)
    return {id_: _draws_of(body) for id_, body in found}


def _draws_of(body: bytes | None) -> dict[str, RouteDraws] | None:
    try:
        return None if body is None else draws_decode(body)
    except msgspec.DecodeError:
        return None


def _forbidden(
    splits: Sequence[Split], gateways: Iterable[str]
) -> dict[tuple[str, str], dict[str, int]]:
    """What versions of weight 0 served, by model and live gateway."""
    weights = {split.model: split.weights for split in splits}
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    rows = _served(splits).filter(gateway__in=list(gateways))
    rows = rows.values("model", "gateway", "version").annotate(n=Sum("requests"))
    for row in rows.order_by():
        if not weights.get(row["model"], {}).get(row["version"]):
            found[row["model"], row["gateway"]][row["version"]] = row["n"]
    return found


def _check(
    split: Split,
    draws: Mapping[str, dict[str, RouteDraws] | None],
    forbidden: Mapping[tuple[str, str], dict[str, int]],
) -> RouteCheck:
    gateways: list[GatewayCheck] = []
    drawn: Counter[str] = Counter()
    for gateway, routes in draws.items():
        served = forbidden.get((split.model, gateway), {})
        mine = _drawn_now(split, routes)
        verdict = None
        if mine is not None or served:
            verdict = shares_check(mine or {}, split.weights, served)
        gateways.append(GatewayCheck(gateway, mine or {}, verdict))
        drawn.update(mine or {})
    together = shares_check(drawn, split.weights)
    return RouteCheck(
        *(split.model, split.generation, split.weights),
        *(gateways, dict(drawn), together),
    )


def _drawn_now(
    split: Split, routes: dict[str, RouteDraws] | None
) -> dict[str, int] | None:
    """The draws by the generation in force; None from a gateway that says nothing,
    or draws by another one."""
    if routes is None:
        return None
    draws = routes.get(split.model)
    if draws is None:
        return {}
    theirs = (draws.epoch, draws.created, draws.generation)
    same = theirs == (split.epoch, split.created, split.generation)
    return draws.drawn if same else None
