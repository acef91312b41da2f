"""A snapshot compiled into what a request needs, once per revision."""

from __future__ import annotations

from dataclasses import dataclass

from routing.balance.draw import Draw
from routing.balance.state import Group, ReplicaState, ReplicaStates
from routing.contracts.route import Strategy
from routing.contracts.snapshot import RouteEntry, Snapshot, VersionEntry


@dataclass(frozen=True, slots=True, eq=False)
class Replica:
    """One address, with the state that outlives this router."""

    id: str
    address: str
    state: ReplicaState


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    name: str
    served_name: str
    weight_bp: int
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """``draw`` holds the versions with a weight above 0."""

    entry: RouteEntry
    versions: dict[str, Version]
    draw: Draw[Version]
    group: Group


class Router:
    """The routes of one revision by model name. Never changes."""

    __slots__ = ("epoch", "revision", "routes")

    def __init__(self, epoch: int, revision: int, routes: dict[str, Route]) -> None:
        self.epoch = epoch
        self.revision = revision
        self.routes = routes

    @classmethod
    def compile(cls, snapshot: Snapshot, states: ReplicaStates) -> Router:
        routes = {entry.model: _route(entry, states) for entry in snapshot.routes}
        return cls(snapshot.epoch, snapshot.revision, routes)

    def members(self) -> dict[str, list[str]]:
        """The replicas of each model, whatever their version."""
        return {
            model: [
                replica.id
                for version in route.versions.values()
                for replica in version.replicas
            ]
            for model, route in self.routes.items()
        }


def _route(entry: RouteEntry, states: ReplicaStates) -> Route:
    versions = {version.name: _version(version, states) for version in entry.versions}
    draw = Draw([(version, version.weight_bp) for version in versions.values()])
    group = states.group(entry.model)
    group.scrapes = entry.settings.strategy is Strategy.QUEUE_AWARE
    return Route(entry, versions, draw, group)


def _version(entry: VersionEntry, states: ReplicaStates) -> Version:
    replicas = tuple(
        Replica(replica.id, replica.address, states.get(replica.id))
        for replica in entry.replicas
    )
    return Version(entry.name, entry.served_name, entry.weight_bp, replicas)
