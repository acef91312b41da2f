from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from cluster.actor import Actor
from cluster.errors import Refused
from console.accounts.services import PASSWORD_FILE, first_start


class Command(BaseCommand):
    help = "Makes the user admin with a password and an API token, once."

    def handle(self, *args: Any, **options: Any) -> None:
        actor = Actor("command", "first_start")
        try:
            start = first_start(data_dir=settings.DATA_DIR, actor=actor)
        except Refused as refusal:
            raise CommandError(str(refusal.message)) from refusal
        if start.made:
            self.stdout.write(f"The password of admin lies in {start.password_file}.")
            self.stdout.write(f"A token for the API lies in {start.token_file}.")
        for path in start.lost:
            kind = "password" if path.name == PASSWORD_FILE.filename else "token"
            self.stdout.write(
                f"{path} is gone. If you need it again: manage.py admin_{kind}"
            )
