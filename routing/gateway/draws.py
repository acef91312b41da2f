"""Counts the draws of this process, for the check that they follow the weights."""

from __future__ import annotations

from routing.balance.router import Router
from routing.contracts.draws import RouteDraws
from routing.contracts.snapshot import RouteEntry


class Draws:
    """Of each route the draws by the generation in force; an older one is forgotten."""

    def __init__(self) -> None:
        self._routes: dict[str, RouteDraws] = {}

    def count(self, epoch: int, entry: RouteEntry, version: str) -> None:
        """One draw of ``version`` by the weights of this entry."""
        draws = self._routes.get(entry.model)
        if draws is None or not _is_of(draws, epoch, entry):
            draws = RouteDraws(epoch, entry.created, entry.generation, {})
            self._routes[entry.model] = draws
        drawn = draws.drawn
        drawn[version] = drawn.get(version, 0) + 1

    def current(self, router: Router | None) -> dict[str, RouteDraws]:
        """The draws by what the router holds; others are dropped."""
        routes = router.routes if router is not None else {}
        self._routes = {
            model: draws
            for model, draws in self._routes.items()
            if router is not None
            and model in routes
            and _is_of(draws, router.epoch, routes[model].entry)
        }
        return self._routes


def _is_of(draws: RouteDraws, epoch: int, entry: RouteEntry) -> bool:
    return (
        draws.generation == entry.generation
        and draws.epoch == epoch
        and draws.created == entry.created
    )
