"""What a person or a token may do: roles, scopes, and the sentence that says no.

Every write needs one scope. A role is a set of scopes; a token has a set of its own,
of which only those count that its user's role has too. Reading is for everybody who
is logged in, but for the pages of ``AUDIT`` and ``ACCOUNTS``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from cluster.errors import Refused


class Role(enum.StrEnum):
    """Who may do what, each more than the one before."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Scope(enum.StrEnum):
    """``TRAFFIC`` is weights and routes; ``FLEET`` models, versions, replicas and
    nodes; ``KEYS`` the keys of every team; ``TEAMS`` the teams themselves; ``AUDIT``
    reading the audit log; ``ACCOUNTS`` users, and the sessions and tokens of others."""

    READ = "read"
    TRAFFIC = "traffic"
    FLEET = "fleet"
    KEYS = "keys"
    TEAMS = "teams"
    AUDIT = "audit"
    ACCOUNTS = "accounts"


_VIEWER = frozenset({Scope.READ})
_OPERATOR = _VIEWER | {Scope.TRAFFIC, Scope.FLEET, Scope.KEYS, Scope.AUDIT}
SCOPES_OF = {
    Role.VIEWER: _VIEWER,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: frozenset(Scope),
}
ROLE_NAMES = {
    Role.VIEWER: gettext_lazy("viewer"),
    Role.OPERATOR: gettext_lazy("operator"),
    Role.ADMIN: gettext_lazy("admin"),
}


class Denied(Refused):
    """The caller may not do that; ``message`` says who may."""

    def __init__(self, message: str, scope: Scope) -> None:
        super().__init__(message, code="not_permitted")
        self.scope = scope


@dataclass(frozen=True)
class Grant:
    """``leads`` are the short names of the teams whose keys a person manages whatever
    the role. ``token`` names the token that calls, if one does."""

    role: Role
    scopes: frozenset[Scope]
    leads: frozenset[str] = field(default_factory=frozenset)
    token: str = ""

    def allows(self, scope: Scope, *, team: str = "") -> bool:
        if scope is Scope.KEYS and team in self.leads:
            return True
        return scope in self.scopes

    def refusal(self, scope: Scope, *, team: str = "") -> str:
        """Why not, and who may; empty where it is allowed."""
        if self.allows(scope, team=team):
            return ""
        if self.token and scope in SCOPES_OF[self.role]:
            return _("This token lacks the scope %(scope)s.") % {"scope": scope.value}
        least = next(role for role in Role if scope in SCOPES_OF[role])
        return _("Needs the role %(role)s; yours is %(own)s.") % {
            "role": ROLE_NAMES[least],
            "own": ROLE_NAMES[self.role],
        }

    def require(self, scope: Scope, *, team: str = "") -> None:
        """Raises ``Denied`` where it is not allowed."""
        if reason := self.refusal(scope, team=team):
            raise Denied(reason, scope)


NOBODY = Grant(Role.VIEWER, frozenset())


def grant_of(request: HttpRequest) -> Grant:
    """What the caller of this request may do, read once per request."""
    known = vars(request).get("grant")
    if isinstance(known, Grant):
        return known
    user = getattr(request, "user", None)
    grant = user.grant if user is not None and user.is_authenticated else NOBODY
    vars(request)["grant"] = grant
    return grant
