from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from cluster.actor import Actor
from cluster.errors import Refused
from console.accounts.services import ADMIN, admin_token_reset


class Command(BaseCommand):
    help = "Replaces the API token in the data directory; the old one is revoked."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", nargs="?", default=ADMIN)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            path = admin_token_reset(
                data_dir=settings.DATA_DIR,
                username=options["username"],
                actor=Actor("command", "admin_token"),
            )
        except Refused as refusal:
            raise CommandError(str(refusal.message)) from refusal
        self.stdout.write(f"The new token lies in {path}.")
