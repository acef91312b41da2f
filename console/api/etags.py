"""Optimistic locking: ``ETag`` on what is read, ``If-Match`` on what is written.

The etag of a route and of its weights is the generation, in quotes; of anything
else it is a digest of what a write may change.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from django.utils.translation import gettext as _
from ninja import Header

from cluster.errors import Refused
from console.api.problems import PreconditionMissing, Stale

IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="The ETag of what you read."),
]


def etag_of(*content: object) -> str:
    text = json.dumps(content, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def etag_check(if_match: str | None, current: str, *, required: bool = False) -> None:
    """Raise unless the caller saw the object as it is now.

    An If-Match that is sent always counts, also where it is not required.
    """
    if if_match is None:
        if required:
            raise PreconditionMissing
        return
    if _etag_read(if_match) != current:
        raise Stale(current)


def generation_seen(if_match: str | None, body: int | None) -> int:
    """The generation that the caller saw, from If-Match or from the body."""
    if if_match is None:
        if body is None:
            raise PreconditionMissing
        return body
    text = _etag_read(if_match)
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Refused(
            _("The etag of a route is its generation, a number in quotes."),
            code="bad_etag",
            field="If-Match",
        )
    if body is not None and body != int(text):
        raise Refused(
            _("If-Match and the body name different generations."),
            code="generation_mismatch",
            field="generation",
        )
    return int(text)


def _etag_read(text: str) -> str:
    """The etag without quotes. A proxy that compresses may have made it weak."""
    return text.strip().removeprefix("W/").strip('"')
