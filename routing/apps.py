from __future__ import annotations

from django.apps import AppConfig


class RoutingConfig(AppConfig):
    name = "routing"
    verbose_name = "Routing"

    def ready(self) -> None:
        from django.db.backends.signals import connection_created

        from cluster.announce import inventory_changed
        from routing.selectors.hour_day import hour_day_install
        from routing.services.inventory import inventory_follow

        inventory_changed.connect(inventory_follow, dispatch_uid="routing.inventory")
        connection_created.connect(hour_day_install, dispatch_uid="routing.hour_day")
