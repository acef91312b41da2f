"""What every page's frame shows, whatever the page."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest


def frame(request: HttpRequest) -> dict[str, Any]:
    return {"version": settings.VERSION}
