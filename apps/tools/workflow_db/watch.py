"""One thread a process that interrupts the statements which have run for too long, or written too much.

SQLite's own way of being asked, the progress handler, counts instructions: a few slow ones, a count over a large
table, a sort of large values come between two questions. An interruption is seen at every row. Within a row, which may
be thousands of calls of functions over large values, only errors end a statement: from then on no value is short
enough.
"""

from __future__ import annotations

import os
import resource
import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

EVERY_S = 0.1
BLOCK = 512
TOGETHER = 1024 * 1024 * 1024  # written by all statements of a process that only read, now


def _written() -> int:
    """Bytes that the calling thread has written to files: pages, each as often as it was on its way to the disk."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_oublock * BLOCK


@dataclass(eq=False, slots=True)
class Running:
    """A statement of the thread that makes this: until when it may run (a `time.monotonic`), what it may write."""

    raw: sqlite3.Connection
    deadline: float
    most: int
    only_reads: bool = False
    has_written: int = 0
    wrote_too_much: bool = False
    stopped: bool = False
    _thread: int = field(default_factory=threading.get_native_id)
    _before: int = field(default_factory=_written)

    def look(self) -> None:
        """From any thread. Temporary files are the kernel's to count: SQLite neither tells nor bounds them."""
        with suppress(OSError), open(f"/proc/self/task/{self._thread}/io", "rb") as file:
            self._judge(int(file.read().partition(b"\nwrite_bytes: ")[2].partition(b"\n")[0]))

    def look_from_within(self) -> None:
        """From the statement's own thread."""
        self._judge(_written())

    def stop(self) -> None:
        """From any thread. Whoever runs the statement gives its connection the usual length of values back."""
        self.stopped = True
        with suppress(sqlite3.Error):  # it was closed just now
            self.raw.interrupt()
            self.raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1)

    def _judge(self, written: int) -> None:
        self.has_written = written - self._before
        self.wrote_too_much |= self.has_written > self.most


class Watch:
    """Statements that run."""

    def __init__(self) -> None:
        self._running: set[Running] = set()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self, running: Running) -> None:
        with self._change:
            self._running.add(running)
            if self._thread is None or not self._thread.is_alive():  # there may have been none to be had
                self._thread = threading.Thread(target=self._look, name="workflow-db-watch", daemon=True)
                self._thread.start()
            elif len(self._running) == 1:
                self._change.notify()

    def end(self, running: Running) -> None:
        """After this the statement's connection is not interrupted."""
        with self._change:
            self._running.discard(running)

    def _look(self) -> None:
        while True:
            with self._change:
                while not self._running:
                    self._change.wait()
                now = time.monotonic()
                for running in self._running:
                    running.look()
                self._share()
                for running in self._running:
                    if running.wrote_too_much or now > running.deadline:
                        running.stop()
            time.sleep(EVERY_S)

    def _share(self) -> None:
        """Many at a time have less each: those are ended that have written more than their part."""
        reading = [running for running in self._running if running.only_reads]
        if sum(running.has_written for running in reading) > TOGETHER:
            for running in reading:
                running.wrote_too_much |= running.has_written > TOGETHER // len(reading)


watch = Watch()


def _anew() -> None:
    """A forked child has neither the thread nor, perhaps, the lock."""
    global watch  # noqa: PLW0603 - one a process
    watch = Watch()


os.register_at_fork(after_in_child=_anew)
