"""A cluster of django_q as a child in its own process group, signalled at its main process only (STACK: Q7 to Q9)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable

from django.conf import settings

from apps.runs.models import Run
from engine.sandbox import processes

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Cluster:
    """One running cluster."""

    def __init__(self, worker_id: uuid.UUID) -> None:
        self.worker_id = worker_id
        self.began = time.monotonic()
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "cluster", str(worker_id)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self.pid = self._process.pid
        self.pid_started = processes.started(self.pid) or ""

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def busy(self) -> int:
        """How many of its processes hold a lease."""
        held = Run.objects.running().filter(lease_worker_id=self.worker_id).values_list("lease_pid", flat=True)
        return sum(pid is not None and _group(pid) == self.pid for pid in held)

    def stop_taking(self) -> None:
        """It ends by itself after the tasks that run. To the whole group this signal would hang it (Q8)."""
        if self.alive:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout: float) -> bool:
        """True once its main process has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        return not self.alive

    def kill(self) -> None:
        """Ends every process of it; a sandbox ends with the process that started it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def die_with(parent: int, how: signal.Signals) -> None:
    """This process gets the signal when the process that started it ends, however it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(how), 0, 0, 0)
    if os.getppid() != parent:  # it ended before that took effect
        os.kill(os.getpid(), how)


def in_each_child(parent_of: Callable[[], int] = os.getppid) -> None:
    """What every process that a cluster forks does first: without its parent it must take nothing any more (Q9)."""
    die_with(parent_of(), signal.SIGKILL)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
