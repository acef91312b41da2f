"""What an engine says that it is: its release, and the names of its models.

All facts are one Redis hash, ``ENGINE_FACTS``: replica id → JSON ``EngineFacts``.
They are a value beside the live record and change no state: engines that refuse
unknown names have the list in their health, the others serve whatever they run.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cluster.health.record import Probe, Record

ENGINE_FACTS = "sluice:engine-facts"
# Nothing of it changes while an engine runs, so asking is rare.
ASK_EVERY_S = 300.0
ASK_AGAIN_S = 60.0


class EngineFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answers at ``at``, in Unix seconds; what is unknown is empty or None.

    ``version_id`` is the row of the replica's version, because the replicas of one
    version are compared, ``release`` the release of the engine. ``models`` are
    the first of the ``model_count`` names that it lists, ``serves_name`` says whether
    that of the version is among all of them. Not ``is_current``: it does not answer
    since.
    """

    at: float
    version_id: int
    process_since: float = 0.0
    release: str = ""
    models: tuple[str, ...] | None = None
    model_count: int = 0
    serves_name: bool | None = None
    is_current: bool = True

    @property
    def is_empty(self) -> bool:
        return not self.release and self.models is None


def answers(record: Record) -> bool:
    """Whether the replica is up, by the last probe of the process that runs."""
    probe = record.probe
    return probe is not None and probe.state is Probe.UP and not record.is_stale(probe)


def facts_due(record: Record, facts: EngineFacts | None, *, now: float) -> bool:
    """Whether to ask: at first readiness, after every return, and now and then."""
    probe = record.probe
    if probe is None or not answers(record):
        return False
    if facts is None or not facts.is_current:
        return True
    if facts.process_since != record.process_since or facts.at < probe.since:
        return True
    # Asked in the future: the clock was set back.
    return not 0 <= now - facts.at < (ASK_AGAIN_S if facts.is_empty else ASK_EVERY_S)


def releases_of(facts: Iterable[EngineFacts], version_id: int) -> list[str]:
    """The releases that the replicas of a version run on now, each once."""
    return sorted(
        {
            one.release
            for one in facts
            if one.version_id == version_id and one.is_current and one.release
        }
    )


def engine_facts_decode(raw: bytes | None) -> EngineFacts | None:
    """Facts as read from Redis; None for none and for unreadable ones."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=EngineFacts)
    except msgspec.DecodeError:
        return None
