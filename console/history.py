"""Audit actions in words, for the change feed and for excerpts on pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext_lazy, ngettext

from cluster.models import AuditRecord
from cluster.selectors.audit import audit_list

_SENTENCES = {
    "model.create": gettext_lazy("created the model %(target)s"),
    "model.update": gettext_lazy("described the model %(target)s"),
    "model.delete": gettext_lazy("deleted the model %(target)s"),
    "version.create": gettext_lazy("added the version %(target)s"),
    "node.create": gettext_lazy("registered the node %(target)s"),
    "node.update": gettext_lazy("moved the node %(target)s"),
    "replica.create": gettext_lazy("added the replica %(target)s"),
    "replica.enable": gettext_lazy("enabled the replica %(target)s"),
    "replica.drain": gettext_lazy("began to drain the replica %(target)s"),
    "replica.drain_then_stop": gettext_lazy(
        "began to drain the replica %(target)s, to stop it then"
    ),
    "replica.disable": gettext_lazy("disabled the replica %(target)s"),
    "replica.start": gettext_lazy("wanted the replica %(target)s started"),
    "replica.stop": gettext_lazy("wanted the replica %(target)s stopped"),
    "replica.restart": gettext_lazy("wanted the replica %(target)s restarted"),
    "replica.remove": gettext_lazy("removed the replica %(target)s"),
    "replica.readmit": gettext_lazy("put the replica %(target)s back into use"),
    "weights.set": gettext_lazy("changed the weights of %(target)s"),
    "route.set": gettext_lazy("changed the route of %(target)s"),
    "route.restore": gettext_lazy("restored an earlier route of %(target)s"),
    "team.create": gettext_lazy("created the team %(target)s"),
    "team.enable": gettext_lazy("enabled the team %(target)s"),
    "team.disable": gettext_lazy("disabled the team %(target)s"),
    "key.issue": gettext_lazy("issued the key %(target)s"),
    "key.update": gettext_lazy("changed the key %(target)s"),
    "key.revoke": gettext_lazy("revoked the key %(target)s"),
    "user.create": gettext_lazy("added the user %(target)s"),
    "user.role": gettext_lazy("changed what %(target)s may do"),
    "user.activate": gettext_lazy("let %(target)s log in again"),
    "user.deactivate": gettext_lazy("deactivated the user %(target)s"),
    "user.password": gettext_lazy("changed the password of %(target)s"),
    "user.unlock": gettext_lazy("unlocked the login of %(target)s"),
    "token.issue": gettext_lazy("issued the access token %(target)s"),
    "token.revoke": gettext_lazy("revoked the access token %(target)s"),
    "session.login": gettext_lazy("logged in as %(target)s"),
    "session.refused": gettext_lazy("failed to log in as %(target)s"),
    "session.revoke": gettext_lazy("ended sessions of %(target)s"),
    "access.refused": gettext_lazy("was refused at %(target)s"),
}


@dataclass(frozen=True)
class Entry:
    """One line of history; ``sentence`` continues the actor's name."""

    at: datetime
    actor: str
    sentence: str
    change: str
    url: str
    record: int

    @property
    def audit_query(self) -> str:
        """The page of the audit log that begins with this record."""
        return f"before={self.record + 1}"


def recent(target: str, *kinds: str, limit: int = 5) -> list[Entry]:
    """The newest changes of one object; ``kinds`` are those of its actions, for a team
    and a model may have the same name."""
    wanted = Q()
    for kind in kinds:
        wanted |= Q(action__startswith=f"{kind}.")
    return entries(audit_list(target=target).filter(wanted)[:limit])


def entries(records: Iterable[AuditRecord]) -> list[Entry]:
    return [
        Entry(
            at=record.at,
            actor=record.actor_name,
            sentence=_sentence(record),
            change=_change(record),
            url=_url(record),
            record=record.pk,
        )
        for record in records
    ]


def _sentence(record: AuditRecord) -> str:
    """An action without words of its own is shown by its code, never left out."""
    known = _SENTENCES.get(record.action)
    if known is None:
        return f"{record.action} {record.target}"
    return str(known) % {"target": record.target}


def _change(record: AuditRecord) -> str:
    """For weights: the shares after the change, as ``v1 90 %, v2 10 %``; for what
    ends a process: how many requests that cut."""
    after = record.after if isinstance(record.after, dict) else {}
    if cut := after.get("cut"):
        return ngettext(
            "%(n)d request was cut off.", "%(n)d requests were cut off.", cut
        ) % {"n": cut}
    weights = after.get("weights")
    if not isinstance(weights, dict):
        return ""
    return ", ".join(f"{name} {percent(bp)}" for name, bp in weights.items() if bp)


def _url(record: AuditRecord) -> str:
    """Where the object of a record is shown; empty when it is nowhere."""
    kind, verb = record.action.partition(".")[::2]
    if kind in ("weights", "route"):
        return reverse("traffic", args=[record.target])
    if kind == "model" and verb != "delete":
        return reverse("model", args=[record.target])
    if kind == "version":
        return reverse("model", args=[record.target.partition(" ")[0]])
    if kind == "replica":
        return reverse("replica", args=[record.target])
    if kind == "node":
        return reverse("node", args=[record.target])
    if kind == "team":
        return reverse("team", args=[record.target])
    if kind == "key" and (key_id := record.target.partition("/")[2]):
        return reverse("key", args=[key_id])
    return ""


def percent(weight_bp: int) -> str:
    """A share in basis points as a person reads it: ``12.34 %``, never broken."""
    return f"{weight_bp / 100:g}\u00a0%"
