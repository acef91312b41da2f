"""Counts the draws of this process, for the check that they follow the weights."""

from __future__ import annotations

from routing.balance.router import Router
from routing.contracts.draws import RouteDraws
from routing.contracts.snapshot import RouteEntry


class Draws:
    """Of each route the draws by the generation in force; an older one is forgotten."""

    def __init__(self) -> None:
        # The entry is kept beside them: while it is the same object, nothing has to
        # be compared.
        self._routes: dict[str, tuple[RouteEntry, RouteDraws]] = {}

    def count(self, epoch: int, entry: RouteEntry, version: str) -> None:
        """One draw of ``version`` by the weights of this entry."""
        known = self._routes.get(entry.model)
        if known is None or known[0] is not entry:
            known = self._routes[entry.model] = (entry, self._begin(epoch, entry))
        drawn = known[1].drawn
        drawn[version] = drawn.get(version, 0) + 1

    def _begin(self, epoch: int, entry: RouteEntry) -> RouteDraws:
        """Those so far if a new revision left the route alone, else none."""
        known = self._routes.get(entry.model)
        if known is not None and _is_of(known[1], epoch, entry):
            return known[1]
        return RouteDraws(epoch, entry.created, entry.generation, {})

    def current(self, router: Router | None) -> dict[str, RouteDraws]:
        """The draws by what the router holds; others are dropped."""
        routes = router.routes if router is not None else {}
        self._routes = {
            model: known
            for model, known in self._routes.items()
            if router is not None
            and model in routes
            and _is_of(known[1], router.epoch, routes[model].entry)
        }
        return {model: draws for model, (_entry, draws) in self._routes.items()}


def _is_of(draws: RouteDraws, epoch: int, entry: RouteEntry) -> bool:
    return (
        draws.generation == entry.generation
        and draws.epoch == epoch
        and draws.created == entry.created
    )
