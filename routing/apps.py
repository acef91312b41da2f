from __future__ import annotations

from django.apps import AppConfig


class RoutingConfig(AppConfig):
    name = "routing"
    verbose_name = "Routing"

    def ready(self) -> None:
        from cluster.announce import inventory_changed
        from routing.services.inventory import inventory_follow

        inventory_changed.connect(inventory_follow, dispatch_uid="routing.inventory")
