"""`manage.py up`: start the product on this machine."""

from __future__ import annotations

import contextlib
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.before import UpRefused
from config.up import Up


class Command(BaseCommand):
    help = "Start web and worker, and serve until Ctrl-C. Seeds nothing unless --demo is given on a fresh database."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--demo",
            action="store_true",
            help="On a database without a team: make the admin and the demo team, send the sample, follow its run.",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            code = Up(self._say, with_demo=options["demo"]).run()
        except UpRefused as refused:
            raise CommandError(str(refused)) from None
        sys.exit(code)

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that is gone, a full disk: neither ends the product
            self.stdout.write(line)
            self.stdout.flush()
