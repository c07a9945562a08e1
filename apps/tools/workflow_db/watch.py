"""One thread a process that interrupts the statements which have run for too long.

SQLite's own way of being asked, the progress handler, counts instructions: a few slow ones, a count over a large
table, a check of the whole file come between two questions. An interruption is seen at every row.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import suppress

EVERY_S = 0.25


class Watch:
    """Statements that run, each with its deadline (a `time.monotonic`)."""

    def __init__(self) -> None:
        self._running: dict[sqlite3.Connection, float] = {}
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self, raw: sqlite3.Connection, deadline: float) -> None:
        with self._change:
            self._running[raw] = deadline
            if self._thread is None or not self._thread.is_alive():  # there may have been none to be had
                self._thread = threading.Thread(target=self._look, name="workflow-db-watch", daemon=True)
                self._thread.start()
            elif len(self._running) == 1:
                self._change.notify()

    def end(self, raw: sqlite3.Connection) -> None:
        """After this nothing of the connection is interrupted."""
        with self._change:
            self._running.pop(raw, None)

    def _look(self) -> None:
        while True:
            with self._change:
                while not self._running:
                    self._change.wait()
                now = time.monotonic()
                for raw, deadline in self._running.items():
                    if now > deadline:
                        with suppress(sqlite3.Error):
                            raw.interrupt()
            time.sleep(EVERY_S)


watch = Watch()


def _anew() -> None:
    """A forked child has neither the thread nor, perhaps, the lock."""
    global watch  # noqa: PLW0603 - one a process
    watch = Watch()


os.register_at_fork(after_in_child=_anew)
