from __future__ import annotations

from django.apps import AppConfig


class ClusterConfig(AppConfig):
    name = "cluster"
    verbose_name = "Cluster"

    def ready(self) -> None:
        # Connects what a Celery worker does beside its tasks.
        from cluster import worker  # noqa: F401
