"""Rows as a file for spreadsheets."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO

from django.http import HttpResponse


def csv_response(
    name: str, head: Sequence[str], rows: Iterable[Sequence[object]]
) -> HttpResponse:
    """The rows under their heads, to be saved as ``name``."""
    file = StringIO()
    writer = csv.writer(file)
    writer.writerow(head)
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    response = HttpResponse(file.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula is marked as text."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
