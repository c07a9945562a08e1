"""Real workers for tests: supervisors with their clusters, as processes of their own on the test's database."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from django.conf import settings
from django.db import connection

from apps.runs.models import Attempt, Run, Worker
from engine.sandbox import processes

PATIENCE_S = 45
Value = TypeVar("Value")


def environment(**more: str) -> dict[str, str]:
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.runs.child_settings",
        "PULSE_DATA": str(settings.PULSE_DATA),
        "PULSE_SECRET_KEY": settings.SECRET_KEY,
        "PULSE_TEST_CHILD_DATABASE": str(connection.settings_dict["NAME"]),
        "PULSE_TEST_HASTE": "1",
        "PULSE_RUN_SLOTS": "2",
        "PULSE_DRAIN_S": "20",
        **more,
    }


class Supervised:
    """A `manage.py worker` that a test may kill."""

    def __init__(self, **more: str) -> None:
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "worker"]
        self.log = Path(settings.PULSE_DATA) / f"worker-{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, env=environment(**more), start_new_session=True, stdout=log, stderr=log
            )

    @property
    def row(self) -> Worker:
        return Worker.objects.get(pid=self.process.pid)

    def ready(self) -> None:
        """Until its cluster is there and takes messages."""
        until(lambda: Worker.objects.filter(pid=self.process.pid).exclude(cluster_pid=None).exists(), self)

    def members(self) -> list[int]:
        """Every process of its cluster."""
        cluster = self.row.cluster_pid
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(ProcessLookupError):
                if name.isdigit() and os.getpgid(int(name)) == cluster and not _is_zombie(int(name)):
                    found.append(int(name))
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def worker(**more: str) -> Iterator[Supervised]:
    supervised = Supervised(**more)
    try:
        supervised.ready()
        yield supervised
    finally:
        clusters = list(Worker.objects.values_list("cluster_pid", flat=True))
        supervised.kill()
        for pid in clusters:
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)


def _is_zombie(pid: int) -> bool:
    since = processes.started(pid)
    return since is None or not processes.alive(pid, since)


def until(what: Callable[[], Value], whose: Supervised | None = None, within: float = PATIENCE_S) -> Value:
    """The first true answer; AssertionError with the worker's log when there is none in time."""
    deadline = time.monotonic() + within
    while True:
        if value := what():
            return value
        if time.monotonic() > deadline:
            log = whose.log.read_text()[-4000:] if whose else ""
            raise AssertionError(f"it did not come true within {within:.0f} s\n{log}")
        time.sleep(0.05)


def status(run: Run) -> str:
    return Run.objects.values_list("status", flat=True).get(pk=run.pk)


def started(run: Run, whose: Supervised | None = None) -> Attempt:
    """The run's open attempt, once its code was let go."""
    rows = Attempt.objects.filter(step_run__run=run, outcome="").exclude(pid=None)
    return until(rows.first, whose)  # type: ignore[arg-type,return-value]


def lives(attempt: Attempt) -> bool:
    return attempt.pid is not None and processes.alive(attempt.pid, attempt.pid_started)
