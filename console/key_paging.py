"""Where a page of a list of keys continues, as text for an address."""

from __future__ import annotations

from datetime import datetime

from django.core import signing
from django.utils.translation import gettext as _

from cluster.errors import Refused
from routing.selectors import KeyFind, Position


def cursor_write(find: KeyFind, position: Position) -> str:
    """Signed for what was looked for: it continues no other list."""
    moment, key_id = position
    return signing.dumps([moment.isoformat(), key_id], salt=_salt(find))


def cursor_read(find: KeyFind, cursor: str) -> Position:
    """Raises ``Refused`` for a cursor that was made up, or for another list."""
    try:
        moment, key_id = signing.loads(cursor, salt=_salt(find))
    except signing.BadSignature:
        raise Refused(
            _("This is no cursor of this list."), code="bad_cursor", field="cursor"
        ) from None
    return Position(datetime.fromisoformat(moment), key_id)


def _salt(find: KeyFind) -> str:
    team = "" if find.team is None else find.team.slug
    return f"keys {team} {find.state or ''} {find.query}"
