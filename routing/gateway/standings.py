"""From the live records to what the router may use: the one merge, per model.

``records`` are as last read from Redis; ``own`` is what this gateway decided about a
replica and Redis has not confirmed yet. Both together are what counts here, so that
a decision acts at once, and also while Redis is away.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from cluster.health import (
    Cause,
    Label,
    Passive,
    PassiveAxis,
    Probe,
    ProbeAxis,
    Record,
    State,
    record_decode,
    states_merge,
)
from cluster.health.passive import later, passive_of
from routing.balance.state import Group, ReplicaState, ReplicaStates, Standing

# What a replica that nobody has told of is taken for while nobody can.
_TRUSTED = Record(probe=ProbeAxis(Probe.UP, 0.0))
# States after which a replica gets its share little by little. Not those that people
# chose: whoever enables a replica expects it to serve.
_WAS_ILL = frozenset(
    {
        *(Label.EJECTED, Label.HALF_OPEN, Label.QUARANTINED, Label.DOWN),
        *(Label.LOADING, Label.WARMING, Label.STARTING, Label.FAILED),
    }
)


class Standings:
    """Keeps the standing of every replica and the groups of every model."""

    def __init__(self, states: ReplicaStates) -> None:
        self._states = states
        self.records: dict[str, Record] = {}
        self.own: dict[str, PassiveAxis] = {}
        self.merged: dict[str, State] = {}
        # Redis's clock minus ours: times of ``passive`` are meant by the former.
        self.offset_s = 0.0
        self._blind = False
        self._model_of: dict[str, Group] = {}
        self._unsettled: set[str] = set()

    def now(self) -> float:
        """Unix time by Redis's clock, as last heard."""
        return time.time() + self.offset_s

    def record(self, replica_id: str) -> Record:
        """What counts here: as read, with what was decided here on top."""
        unheard = _TRUSTED if self._blind else Record()
        record = self.records.get(replica_id, unheard)
        own = self.own.get(replica_id)
        if own is None:
            return record
        return msgspec.structs.replace(record, passive=later(record.passive, own))

    def follow(self) -> None:
        """A new revision: other groups, other replicas."""
        groups = self._states.groups()
        self._model_of = {state.id: group for group in groups for state in group.states}
        known = self._model_of.keys()
        for gone in (self.records.keys() | self.merged.keys()) - known:
            self.records.pop(gone, None)
            self.merged.pop(gone, None)
            self.own.pop(gone, None)
        self._unsettled &= {group.model for group in groups}
        for group in groups:
            self._merge(group)

    def read(self, answers: dict[str, dict[bytes, bytes]]) -> None:
        """Take over records as Redis has them. What vanished, a whole record or one
        axis of it, was lost with Redis: what was known stands."""
        for replica_id, fields in answers.items():
            if fields:
                before = self.records.get(replica_id, Record())
                self.records[replica_id] = _over(before, record_decode(fields))
        self.merge(answers)

    def blind(self, is_blind: bool) -> None:
        """Whether Redis is away: then trying beats refusing, and a replica that nobody
        has told of is taken for able to serve."""
        if self._blind is not is_blind:
            self._blind = is_blind
            self.follow()

    def agree(
        self, replica_id: str, axis: PassiveAxis | None, decided: PassiveAxis
    ) -> None:
        """Redis has this axis now; ``decided`` is what this gateway had meant."""
        if self.own.get(replica_id) is decided:
            del self.own[replica_id]
        record = self.records.get(replica_id, Record())
        self.records[replica_id] = msgspec.structs.replace(record, passive=axis)
        self.merge([replica_id])

    def decide(self, replica_id: str, axis: PassiveAxis) -> None:
        self.own[replica_id] = axis
        self.merge([replica_id])

    def merge(self, replica_ids: Iterable[str]) -> None:
        """Anew for the models of these replicas."""
        groups = {id(g): g for i in replica_ids if (g := self._model_of.get(i))}
        for group in groups.values():
            self._merge(group)

    def tick(self) -> None:
        """Time alone changes states too: ejections end, suspicions expire."""
        if self._unsettled:
            for group in self._states.groups():
                if group.model in self._unsettled:
                    self._merge(group)

    def _merge(self, group: Group) -> None:
        records = {state.id: self.record(state.id) for state in group.states}
        merged = states_merge(records, now=self.now())
        settled = True
        for state in group.states:
            passive = passive_of(records[state.id])
            state.marked = passive is not None and passive.state is not Passive.IN
            settled &= not state.marked
            self._apply(state, merged[state.id])
        group.trials = tuple(s for s in group.states if merged[s.id].trial)
        group.panic = any(merged[s.id].panic for s in group.states)
        self._unsettled.discard(group.model)
        if not settled:
            self._unsettled.add(group.model)

    def _apply(self, state: ReplicaState, merged: State) -> None:
        before = self.merged.get(state.id)
        self.merged[state.id] = merged
        state.standing = standing_of(merged)
        if state.standing is Standing.BARRED:
            state.prefixes.clear()
        state.draining = merged.label is Label.DRAINING
        if not merged.eligible or merged.panic:
            state.slow_since = 0.0
        elif before is None or before.eligible:
            if before is None and merged.recovered_at:
                # It came back before this gateway began to look.
                age_s = max(0.0, self.now() - merged.recovered_at)
                state.slow_since = time.monotonic() - age_s
        elif before.label in _WAS_ILL:
            state.slow_since = time.monotonic()


def standing_of(state: State) -> Standing:
    if state.eligible:
        return Standing.SUSPECT if state.last_choice else Standing.ELIGIBLE
    if state.trial:
        return Standing.TRIAL
    if state.label in (Label.EJECTED, Label.QUARANTINED):
        return Standing.EJECTED
    if state.cause is Cause.NOT_PROBED or state.label is Label.WARMING:
        return Standing.UNKNOWN
    return Standing.BARRED


def _over(before: Record, after: Record) -> Record:
    return Record(
        admin=after.admin or before.admin,
        process=after.process or before.process,
        probe=after.probe or before.probe,
        passive=after.passive or before.passive,
        node=after.node or before.node,
    )
