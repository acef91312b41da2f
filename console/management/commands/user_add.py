from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from cluster.actor import Actor
from cluster.errors import Refused
from console.accounts.grants import Role
from console.accounts.users import user_add


class Command(BaseCommand):
    help = "Adds a user and prints the first password, which is kept nowhere."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        roles = [role.value for role in Role]
        parser.add_argument("--role", choices=roles, default=Role.VIEWER.value)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            user, password = user_add(
                username=options["username"],
                role=options["role"],
                actor=Actor("command", "user_add"),
            )
        except Refused as refusal:
            raise CommandError(str(refusal.message)) from refusal
        self.stdout.write(f"{user.username} ({user.role}): {password}")
