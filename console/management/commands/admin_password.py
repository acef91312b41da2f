from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from cluster.actor import Actor
from cluster.errors import Refused
from console.accounts.services import ADMIN, admin_password_reset


class Command(BaseCommand):
    help = "Gives a user a fresh password and writes it into the data directory."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", nargs="?", default=ADMIN)

    def handle(self, *args: Any, **options: Any) -> None:
        username: str = options["username"]
        try:
            path = admin_password_reset(
                data_dir=settings.DATA_DIR,
                username=username,
                actor=Actor("command", "admin_password"),
            )
        except Refused as refusal:
            raise CommandError(str(refusal.message)) from refusal
        self.stdout.write(f"The new password of {username} lies in {path}.")
