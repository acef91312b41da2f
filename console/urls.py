from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from console import health

urlpatterns: list[URLPattern | URLResolver] = [
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("api/", include("console.api.urls")),
    path("", include("console.pages.urls")),
]

handler500 = "console.pages.failures.server_failed"
