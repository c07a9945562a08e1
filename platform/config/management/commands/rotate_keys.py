"""`manage.py rotate_keys`: a new key for everything that is kept encrypted."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.workflows import vault
from apps.workflows.errors import SecretUnreadable
from config import rotation


class Command(BaseCommand):
    help = "Make a new key, put every encrypted value under it, and forget the old keys. Safe while the product runs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--keep-old", action="store_true", help="Leave the old keys in the file.")
        parser.add_argument(
            "--grace",
            type=float,
            default=10.0,
            help="Seconds to wait before the old keys go: what was being saved under one is moved then.",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        key_id = vault.new_key()
        try:
            moved = rotation.move_all(key_id)
            if not options["keep_old"]:
                time.sleep(options["grace"])
                late = rotation.move_all(key_id)
                moved = {what: count + late[what] for what, count in moved.items()}
        except SecretUnreadable as wrong:
            raise CommandError(f"{wrong.detail} The old keys were kept; what was moved stays readable.") from None
        for what, count in moved.items():
            self.stdout.write(f"{count} {what} moved to key {key_id}.")
        if not options["keep_old"]:
            dropped = vault.drop_keys_but(key_id)
            self.stdout.write(f"Forgot {len(dropped)} old keys. Back up secrets/ now.")
