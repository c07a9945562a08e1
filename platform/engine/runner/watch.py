"""One loop for everything that happens while a step runs: its streams, its bounds, and wishes that it ends."""

from __future__ import annotations

import os
import selectors
import time
from enum import StrEnum

from engine.logs import LogWriter, Stream
from engine.runner.claims import LARGEST
from engine.runner.disk import Disk
from engine.runner.listeners import Listeners, Stop
from engine.sandbox.errors import FileRefused
from engine.sandbox.files import Beneath
from engine.sandbox.launch import Sandbox
from engine.sandbox.limits import MEGABYTE, Limits
from engine.sandbox.usage import Usage

TICK_S = 0.1
OUTPUT_EVERY_S = 1.0
GREW_EVERY_S = 0.05
DRAIN_S = 5.0
_PIECE = 256 * 1024


class Bound(StrEnum):
    """What a step ran into, as the reason below its outcome."""

    TIMEOUT = "timeout"
    OUTPUT = "output"
    LOG = "log"
    CPU = "cpu"
    DISK = "disk"


class Watch:
    """Follows one sandbox to its end. `cut_short` says why the platform ended it, None when it came to its own end.

    `cpu_spent`: whether it can have used up its processor time by then.
    """

    def __init__(
        self, sandbox: Sandbox, log: LogWriter, outputs: Beneath, disk: Disk, limits: Limits, listeners: Listeners
    ) -> None:
        self._sandbox = sandbox
        self._log = log
        self._outputs = outputs
        self._disk = disk
        self._limits = limits
        self._listeners = listeners
        self._start = time.monotonic()
        self._usage = Usage(sandbox.pid, limits.cpu_s, self._start)
        self._next_output = self._start + OUTPUT_EVERY_S
        self._told = (0, 0.0)
        self._claims = b""
        self._selector = selectors.PollSelector()
        for descriptor in (sandbox.stdout, sandbox.stderr, sandbox.claims, sandbox.status):
            self._selector.register(descriptor, selectors.EVENT_READ)
        self.cut_short: Bound | Stop | None = None
        self.cpu_spent = False

    @property
    def claims(self) -> bytes:
        return self._claims

    @property
    def ms(self) -> int:
        """Milliseconds since the start."""
        return int((time.monotonic() - self._start) * 1000)

    def follow(self) -> None:
        """Returns when the step has ended by itself, or must be ended: see `cut_short`. What was seen first counts."""
        self._follow()
        if self.cut_short is not None and self._sandbox.exited:
            self.cut_short = None
        self.cpu_spent = self._usage.may_have_reached(time.monotonic())

    def drain(self) -> None:
        """Takes what is still in the pipes of a tree that has ended, or is about to."""
        deadline = time.monotonic() + DRAIN_S
        while self._selector.get_map() and time.monotonic() < deadline:
            if not self._pump(TICK_S) and self._sandbox.gone():
                return  # whoever holds an end still was handed it

    def left_too_much(self) -> Bound | None:
        """What a step that has ended leaves on the disk beyond its limits: it may have been too quick to be seen."""
        if not self._disk.may_have_grown():
            return None
        return self._output_bound() or self._disk_bound()

    def close(self) -> None:
        self._selector.close()

    def _follow(self) -> None:
        deadline = self._start + self._limits.timeout_s
        next_tick = self._start + TICK_S
        while self._selector.get_map():
            now = time.monotonic()
            if now >= deadline:
                self.cut_short = Bound.TIMEOUT
                return
            if now >= next_tick:
                next_tick = now + TICK_S
                self.cut_short = self._tick()
                if self._sandbox.gone():  # a step can hand its streams to another sandbox, which leaves them open
                    return
            self.cut_short = self.cut_short or self._bounds(now)
            if self.cut_short is not None:
                return
            self._pump(min(next_tick, deadline) - now)
            if self._limits.log_overflow == "fail" and self._log.overflowed:
                self.cut_short = Bound.LOG
                return

    def _pump(self, timeout: float) -> bool:
        """Waits for something to read, and takes it; whether there was any."""
        ready = self._selector.select(max(timeout, 0.0))
        for key, _ in ready:
            descriptor = key.fd
            if descriptor == self._sandbox.status:
                if not self._sandbox.note_status():
                    self._selector.unregister(descriptor)
                continue
            try:
                data = os.read(descriptor, _PIECE)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(descriptor)
            elif descriptor == self._sandbox.claims:
                self._claims = (self._claims + data)[:LARGEST]
            else:
                self._log.write(Stream.OUT if descriptor == self._sandbox.stdout else Stream.ERR, data, self.ms)
        self._tell()
        return bool(ready)

    def _tell(self) -> None:
        rows, at = self._told
        now = time.monotonic()
        if self._log.rows != rows and now - at >= GREW_EVERY_S:
            self._told = (self._log.rows, now)
            self._listeners.log_grew(self._log.rows, self._log.size)

    def _tick(self) -> Stop | None:
        self._log.idle(self.ms)
        self._tell()
        self._disk.note()
        if self._disk.may_have_grown(since_start=False):  # much at once: do not wait for the second to be over
            self._next_output = self._start
        return self._listeners.stop_wanted()

    def _bounds(self, now: float) -> Bound | None:
        found = None
        if now >= self._next_output:
            self._next_output = now + OUTPUT_EVERY_S
            found = self._output_bound() or self._looked_at_disk()
        if found is None and now >= self._usage.next_look and self._usage.exceeded(now):
            return Bound.CPU
        return found

    def _looked_at_disk(self) -> Bound | None:
        return self._disk_bound() if self._disk.may_have_grown() else None

    def _disk_bound(self) -> Bound | None:
        return Bound.DISK if self._disk.over() else None

    def _output_bound(self) -> Bound | None:
        most = self._limits.output_files
        try:
            usage = self._outputs.usage(most=most + 1)
        except (FileRefused, OSError):
            return Bound.OUTPUT  # deeper or stranger than what is counted
        over = usage.bytes > self._limits.output_mb * MEGABYTE or usage.files > most
        return Bound.OUTPUT if over else None
