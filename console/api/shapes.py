"""What the operations of the API have in common."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.config import JsonDict

from console.api.problems import Problem

_Item = TypeVar("_Item")


class Input(BaseModel):
    """A request body: unknown fields are refused, and ``"1"`` is no number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Page(BaseModel, Generic[_Item]):
    """``next`` is the cursor of the page after this one, null on the last."""

    items: list[_Item]
    next: str | None


def choices(values: Iterable[str]) -> JsonDict:
    """For the schema: what a field may hold. The services are what checks it."""
    return {"enum": list(map(str, values))}


def answers(status: int, shape: type[BaseModel] | None, *problems: int) -> Any:
    """The answers of an operation: one shape, and which problems may come instead."""
    always = {401, 500, 503}
    return {status: shape} | dict.fromkeys(sorted(always | set(problems)), Problem)


# A body that is read may be no JSON, too long or unfit; a session needs CSRF.
WRITE = (400, 403, 411, 413, 422)
# A write without a body.
ACT = (403,)


def moment(unix_s: float) -> datetime | None:
    """A time of the live records; 0 means that there is none."""
    return datetime.fromtimestamp(unix_s, UTC) if unix_s else None
