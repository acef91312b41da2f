from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from console.demo import demo_seed


class Command(BaseCommand):
    help = "Set up the demo cluster once: a small model, two versions, a team, a key."

    def handle(self, *args: Any, **options: Any) -> None:
        demo_seed(data_dir=settings.DATA_DIR)
