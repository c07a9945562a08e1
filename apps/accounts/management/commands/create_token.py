"""`manage.py create_token --team TEAM --user USER --name NAME --scope run --scope read`."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.accounts import actions
from apps.accounts.errors import Refused
from apps.accounts.finding import team_of_slug, user_of_name
from apps.accounts.scopes import Scope


class Command(BaseCommand):
    help = "Make an API token of a team and print it, once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--team", required=True, help="The team's slug.")
        parser.add_argument("--user", required=True, help="Who holds the token; it reaches no further than this user.")
        parser.add_argument("--name", default="command line", help="What it is for.")
        parser.add_argument(
            "--scope", action="append", dest="scopes", choices=[scope.value for scope in Scope], required=True
        )
        parser.add_argument("--days", type=int, default=0, help="How long it lives; 0 means until it is revoked.")

    def handle(self, *_args: Any, **options: Any) -> None:
        expires = timezone.now() + timedelta(days=options["days"]) if options["days"] else None
        try:
            made = actions.make_token(
                team_of_slug(options["team"]),
                user_of_name(options["user"]),
                name=options["name"],
                scopes=options["scopes"],
                expires_at=expires,
            )
        except Refused as refused:
            raise CommandError(refused.detail) from None
        self.stdout.write(made.secret)
        self.stderr.write("This is the only time it is shown.")
