"""`manage.py cluster`: the processes that advance runs. Started by `manage.py worker`, not by people."""

from __future__ import annotations

import os
import signal
import uuid
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from apps.runs import queue, tasks, whereabouts
from apps.runs.supervisor import cluster


class Command(BaseCommand):
    help = "Take runs from the queue for the supervisor of this id (started by `manage.py worker`)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("worker", type=uuid.UUID)

    def handle(self, *_args: Any, **options: Any) -> None:
        # Without its supervisor it finishes the running steps and takes nothing more.
        cluster.die_with(os.getppid(), signal.SIGTERM)
        whereabouts.work_for(options["worker"])
        tasks.prepare()
        queue.run_cluster(cluster.in_each_child)
