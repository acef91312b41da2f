"""Lists in pages that stay right while rows come and go.

A cursor is the signed position of the last row that was answered (keyset), so
rows inserted or removed meanwhile neither repeat nor hide others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from operator import attrgetter
from typing import Any, TypeVar

from django.core import signing
from django.db.models import Model, Q, QuerySet
from django.utils.translation import gettext as _
from pydantic import BaseModel, Field

from cluster.errors import Refused
from console.api.auth import ApiRequest

_Row = TypeVar("_Row", bound=Model)
_Value = TypeVar("_Value")
_Out = TypeVar("_Out")


class Paging(BaseModel):
    limit: int = Field(50, ge=1, le=200, description="Rows in one answer.")
    cursor: str | None = Field(None, description="What the page before has as next.")


def query_check(request: ApiRequest, *allowed: str) -> None:
    """Refuse a query parameter that would do nothing."""
    for name in request.GET:
        if name not in allowed:
            raise Refused(
                _("There is no such query parameter."), code="unknown_field", field=name
            )


def page(
    request: ApiRequest,
    rows: QuerySet[_Row],
    *,
    order: tuple[str, ...],
    paging: Paging,
    filters: tuple[str, ...] = (),
) -> tuple[list[_Row], str | None]:
    """One page of the rows, and the cursor of the next one.

    ``order`` is unique as a whole; a leading hyphen means descending. ``filters``
    are further query parameters of the list.
    """
    query_check(request, "limit", "cursor", *filters)
    if paging.cursor is not None:
        position = cursor_read(request, paging.cursor, len(order))
        rows = rows.filter(_after(order, position))
    found = list(rows.order_by(*order)[: paging.limit + 1])
    if len(found) <= paging.limit:
        return found, None
    found.pop()
    keys = (field.lstrip("-").replace("__", ".") for field in order)
    position = [_plain(attrgetter(key)(found[-1])) for key in keys]
    return found, cursor_write(request, position)


def page_of_groups(
    request: ApiRequest,
    groups: QuerySet[_Row, dict[str, Any]],
    *,
    order: tuple[str, ...],
    paging: Paging,
    filters: tuple[str, ...],
) -> tuple[list[dict[str, Any]], str | None]:
    """Like ``page``, for rows that are grouped and sorted by the columns ``order``."""
    query_check(request, "limit", "cursor", *filters)
    if paging.cursor is not None:
        position = cursor_read(request, paging.cursor, len(order))
        groups = groups.filter(_after(order, position))
    found = list(groups[: paging.limit + 1])
    if len(found) <= paging.limit:
        return found, None
    found.pop()
    position = [_plain(found[-1][name]) for name in order]
    return found, cursor_write(request, position)


def page_of_values(
    request: ApiRequest,
    values: Sequence[_Value],
    *,
    key: Callable[[_Value], list[Any]],
    paging: Paging,
) -> tuple[list[_Value], str | None]:
    """Like ``page``, for values at hand that are sorted by ``key``."""
    query_check(request, "limit", "cursor")
    if paging.cursor is not None:
        position = cursor_read(request, paging.cursor)
        values = [value for value in values if key(value) > position]
    found = list(values[: paging.limit])
    more = len(values) > paging.limit
    return found, cursor_write(request, key(found[-1])) if more else None


def _after(order: tuple[str, ...], position: list[Any]) -> Q:
    """The rows that come later: equal in the first fields, beyond in the next."""
    condition = Q()
    equal: dict[str, Any] = {}
    for field, value in zip(order, position, strict=True):
        name = field.lstrip("-")
        beyond = "lt" if field.startswith("-") else "gt"
        condition |= Q(**equal, **{f"{name}__{beyond}": value})
        equal[name] = value
    return condition


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def cursor_write(request: ApiRequest, position: list[Any]) -> str:
    return signing.dumps(position, salt=f"cursor {request.path}")


def cursor_read(
    request: ApiRequest, cursor: str, length: int | None = None
) -> list[Any]:
    """The position, of ``length`` values.

    Signed for its list, so that a cursor made up or taken from elsewhere, or one from
    before an upgrade, is refused and never misread.
    """
    try:
        position: list[Any] = signing.loads(cursor, salt=f"cursor {request.path}")
    except signing.BadSignature:
        position = []
    if not position or (length and len(position) != length):
        raise Refused(
            _("This is no cursor of this list."), code="bad_cursor", field="cursor"
        )
    return position
