"""`manage.py worker`: the supervisor and its cluster."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from apps.runs import fitness
from apps.runs.supervisor import cluster, signs
from apps.runs.supervisor.main import Supervisor
from config import services

CANNOT_SANDBOX = 3


class Command(BaseCommand):
    help = "Advance runs, reap lost ones and keep house, until SIGTERM; then drain for PULSE_DRAIN_S seconds."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--signs-to", type=int, default=0, help="A pipe for signs of life to the starting process.")
        parser.add_argument("--with-parent", action="store_true", help="Stop when the starting process ends.")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["with_parent"]:
            cluster.die_with(os.getppid(), signal.SIGTERM)
        services.check()
        services.check_tables()
        services.check_alone()
        refusal = fitness.refusal()
        if refusal:
            self.stderr.write(f"No step is started on this host. {refusal}")
        supervisor = Supervisor(refusal=refusal)
        if options["signs_to"]:
            signs.give(options["signs_to"], supervisor.goes_round)
        supervisor.run()
        if refusal:
            sys.exit(CANNOT_SANDBOX)
