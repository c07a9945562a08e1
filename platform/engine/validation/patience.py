"""An end to checks that would take for ever: what a step wrote may meet a pattern that never comes to an end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class OutOfPatience(BaseException):
    """It took more processor time than it may. No `Exception`, so that no library takes it for one of its own."""


@contextmanager
def at_most(cpu_seconds: float) -> Iterator[None]:
    """Raises `OutOfPatience` inside when this process has spent so much processor time there.

    It counts processor time, so that a busy machine fails nothing, and leaves SIGALRM to others. Only a main thread
    can be stopped so; elsewhere there is no end. Steps are validated in the main thread of a worker.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _enough)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _enough(_number: int, _frame: FrameType | None) -> NoReturn:
    raise OutOfPatience
