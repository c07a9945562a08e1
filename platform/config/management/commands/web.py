"""`manage.py web`: serve pages, API, hooks and sockets."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from config import serve, services


class Command(BaseCommand):
    help = "Serve pages, API, hooks and sockets until the process is ended."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default=settings.PULSE_HOST)
        parser.add_argument("--port", type=int, default=settings.PULSE_PORT)
        parser.add_argument("--unix-socket", default="", help="A path to listen on instead of host and port.")

    def handle(self, *_args: Any, **options: Any) -> None:
        services.check()
        services.check_tables()
        serve.serve(host=options["host"], port=options["port"], unix_socket=options["unix_socket"])
