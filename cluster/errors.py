"""The failures that a person can cause, raised by services, shown by every door.

::

    Refused              something about the input or the moment forbids it
    ├── Missing          the named thing does not exist
    └── Conflict         someone else changed it first
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise


class Refused(Exception):
    """Nothing was changed. ``field`` names the input at fault, or is empty.

    ``code`` is stable and never translated; ``message`` is for a person.
    """

    def __init__(
        self, message: str | _StrPromise, *, code: str = "invalid", field: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field


class Missing(Refused):
    def __init__(self, message: str | _StrPromise, *, field: str = "") -> None:
        super().__init__(message, code="not_found", field=field)


class Conflict(Refused):
    """``current`` is the generation (or other mark) that is in force now."""

    def __init__(
        self, message: str | _StrPromise, *, current: int, field: str = "generation"
    ) -> None:
        super().__init__(message, code="conflict", field=field)
        self.current = current
