"""Signs of life from a supervisor to `up`, which started it: bytes through a pipe, whatever the database does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from apps.runs.timing import SIGN_S


class Listener:
    """The reading end. `writing` is for the child, until `started`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._heard: float | None = None
        self._looked = clock()

    def started(self) -> None:
        os.close(self.writing)

    def silent_s(self) -> float:
        """For how long no sign came; 0 before the first one, and when this process itself stood still meanwhile."""
        now, heard = self._clock(), b""
        with suppress(BlockingIOError):
            heard = os.read(self._reading, 65536)
        stood_still = now - self._looked > 3 * SIGN_S
        self._looked = now
        if heard or (stood_still and self._heard is not None):
            self._heard = now
        return now - self._heard if self._heard is not None else 0.0

    def close(self) -> None:
        os.close(self._reading)


def give(writing: int, goes_round: Callable[[], bool]) -> None:
    """A thread that gives signs for as long as the process, and what `goes_round` asks about, is well."""
    os.set_blocking(writing, False)
    threading.Thread(target=_give, args=(writing, goes_round), name="signs-of-life", daemon=True).start()


def _give(writing: int, goes_round: Callable[[], bool]) -> None:
    while True:
        if goes_round():
            with suppress(BlockingIOError, BrokenPipeError):  # nobody listens: that is not this process's business
                os.write(writing, b".")
        time.sleep(SIGN_S)
