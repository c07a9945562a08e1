"""The processes that `up` starts: each in its own process group, started again when it ends by itself or hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from django.conf import settings

from apps.runs.supervisor.cluster import die_with
from apps.runs.supervisor.signs import Listener
from apps.runs.timing import HUNG_S
from engine.sandbox import processes

SLOWEST_RESTART_S = 10.0
LONG_ENOUGH_S = 60.0


def log_file() -> Path:
    """Where the processes below `up` write their details, so that the terminal has what a person needs."""
    folder: Path = settings.PULSE_DATA / "log"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / "pulse.log"


class Child:
    """One `manage.py` process. Only `up` gets the terminal's signals; it ends when `up` ends, however that ends.

    One that `gives_signs` gets a pipe for them, and is replaced when none comes any more.
    """

    def __init__(self, name: str, *arguments: str, gives_signs: bool = False) -> None:
        self.name = name
        self._gives_signs = gives_signs
        self._signs: Listener | None = None
        self._command = [sys.executable, str(settings.BASE_DIR / "manage.py"), name, *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._pid_started = ""
        self._began = self._start_at = 0.0
        self._deaths = 0

    def start(self) -> None:
        parent = os.getpid()
        self._began = time.monotonic()
        command, passed = self._command, list[int]()
        if self._gives_signs:
            self._signs = Listener()
            passed = [self._signs.writing]
            command = [*command, "--signs-to", str(self._signs.writing)]
        self._process = subprocess.Popen(
            command,
            pass_fds=passed,
            env={"PULSE_LOG": str(log_file()), **os.environ},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: die_with(parent, signal.SIGTERM),  # noqa: PLW1509 - `up` has one thread
        )
        self._pid_started = processes.started(self._process.pid) or ""
        if self._signs is not None:
            self._signs.started()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def see_to_it(self) -> str:
        """Starts it again if it has ended, sooner the first time; what happened, in words, when something did."""
        if self.alive:
            if self._signs is not None and self._signs.silent_s() > HUNG_S:
                return self._end_hung()
            if time.monotonic() - self._began > LONG_ENOUGH_S:
                self._deaths = 0
            return ""
        if self._process is not None:
            code = self._process.returncode
            self._end_group()
            self._forget()
            return f"{self.name} ended by itself (exit {code}); it is started again."
        if time.monotonic() >= self._start_at:
            try:
                self.start()
            except OSError as wrong:  # no memory, process or descriptor left, a full disk: `up` outlives it
                if self._signs is not None:
                    self._signs.started()
                self._forget()
                return f"{self.name} could not be started ({wrong.strerror}); it is tried again."
        return ""

    def _end_hung(self) -> str:
        """Everything that it started ends first: nothing may run twice."""
        if self._process is None or not processes.kill_tree(self._process.pid, self._pid_started):
            return f"{self.name} hangs, and not all of its processes could be ended yet; none is started beside them."
        self._process.wait()
        self._end_group()
        self._forget()
        return (
            f"{self.name} gave no sign of life for {HUNG_S:.0f} s though its process was there: it was ended, with all"
            " that it had started, and is started again."
        )

    def _forget(self) -> None:
        self._process = None
        if self._signs is not None:
            self._signs.close()
            self._signs = None
        self._start_at = time.monotonic() + min(0.1 * 2**self._deaths, SLOWEST_RESTART_S)
        self._deaths += 1

    def ask_to_end(self) -> None:
        if self._process is not None and self.alive:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Every process of its group, at once."""
        if self._process is not None:
            self._end_group()
            self._process.wait()

    def _end_group(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
