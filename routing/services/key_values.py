"""What a key may be given: checked here once, for issuing it and for changing it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

from django.utils import timezone
from django.utils.translation import gettext as _

from cluster.errors import Refused
from cluster.models import Model
from routing.contracts.keys import SCOPES
from routing.models import ApiKey

KEY_DAYS = 90
TAGS_MOST = 20
TAG_LENGTH = 40
# Unicode categories: control characters, surrogates, separators of lines.
_NO_LINE = ("Cc", "Cs", "Zl", "Zp")


class KeyValues(TypedDict, total=False):
    """``models`` None means every model, ``expires_at`` None never; what is left out
    keeps its value, or has the usual one in a new key."""

    name: str
    owner: str
    tags: Sequence[str]
    models: Sequence[str] | None
    scopes: Sequence[str]
    expires_at: datetime | None


def expiry_usual() -> datetime:
    """When a key expires of which nobody said anything else."""
    return timezone.now() + timedelta(days=KEY_DAYS)


def columns(values: KeyValues, key: ApiKey) -> dict[str, Any]:
    """The columns of the given values, for a key that has the others already.

    Raises ``Refused`` for the first value that cannot be.
    """
    found: dict[str, Any] = {}
    if "name" in values:
        found["name"] = _name(values["name"])
    if "owner" in values:
        found["owner"] = _line(values["owner"].strip(), 100, field="owner")
    if "tags" in values:
        found["tags"] = _tags(values["tags"])
    if "models" in values:
        found["model_names"] = _models(values["models"], key)
    if "scopes" in values:
        found["scopes"] = _scopes(values["scopes"])
    if "expires_at" in values:
        found["expires_at"] = _expiry(values["expires_at"], key)
    return found


def search_text(key: ApiKey, team_slug: str) -> str:
    """All that a search looks at, a line for each: as lists show a key, its name,
    owner, team, and tags."""
    lines = [f"sk-{key.id}\u2026{key.last_four}", key.name, key.owner, team_slug]
    return "\n".join([*lines, *(f"#{tag}" for tag in key.tags)]).casefold()


def _name(name: str) -> str:
    if not name:
        raise Refused(
            _("Give a name of at most 100 characters."), code="required", field="name"
        )
    return _line(name, 100, field="name")


def _line(text: str, most: int, *, field: str) -> str:
    if len(text) > most:
        raise Refused(
            _("At most %(count)d characters.") % {"count": most},
            code="too_long",
            field=field,
        )
    if any(unicodedata.category(character) in _NO_LINE for character in text):
        raise Refused(
            _("One line, without control characters."),
            code="invalid",
            field=field,
        )
    return text


def _tags(tags: Sequence[str]) -> list[str]:
    kept = sorted({_line(tag.strip(), TAG_LENGTH, field="tags") for tag in tags})
    if len(kept) > TAGS_MOST:
        raise Refused(
            _("At most %(count)d tags.") % {"count": TAGS_MOST},
            code="too_many",
            field="tags",
        )
    if any(not tag or "," in tag for tag in kept):
        raise Refused(
            _("A tag is a word or a few, without a comma."),
            code="invalid",
            field="tags",
        )
    return kept


def _models(names: Sequence[str] | None, key: ApiKey) -> list[str] | None:
    """A model that was deleted since may stay in the list of a key."""
    if names is None:
        return None
    known = set(Model.objects.filter(name__in=names).values_list("name", flat=True))
    if unknown := sorted(set(names) - known - set(key.model_names or ())):
        raise Refused(
            _("There is no model %(name)s.") % {"name": ", ".join(unknown)},
            code="unknown_model",
            field="models",
        )
    return sorted(set(names))


def _scopes(scopes: Sequence[str]) -> list[str]:
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise Refused(
            _("There is no scope %(name)s.") % {"name": ", ".join(unknown)},
            code="unknown_scope",
            field="scopes",
        )
    return sorted(set(scopes))


def _expiry(moment: datetime | None, key: ApiKey) -> datetime | None:
    """A key that expired already may keep its expiry while other things change."""
    if moment is not None and moment != key.expires_at and moment <= timezone.now():
        raise Refused(
            _("The expiry lies in the past."), code="in_the_past", field="expires_at"
        )
    return moment
