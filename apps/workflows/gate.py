"""The code gate of a workflow: who changes several files takes it alone, who starts an attempt takes it with others.

An attempt holds it from the opening of its grants until its code digest is read, so that what was mounted is what was
digested. It is a flock on a file beside the code: it ends with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apps.workflows import places
from apps.workflows.errors import GateBusy
from apps.workflows.models import Workflow

PAUSE_S = 0.01
PATIENCE_S = 30.0


@contextmanager
def shared(workflow: Workflow, *, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """For the start of an attempt: many may hold it, none while code is being saved."""
    with _held(workflow, fcntl.LOCK_SH, patience_s):
        yield


@contextmanager
def exclusive(workflow: Workflow, *, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """For a save of code: nobody else holds it. Raises GateBusy, with nothing changed, when it does not become free."""
    with _held(workflow, fcntl.LOCK_EX, patience_s):
        yield


def path_of(workflow: Workflow) -> Path:
    return places.places_of(workflow).root / "code.gate"


@contextmanager
def _held(workflow: Workflow, mode: int, patience_s: float) -> Iterator[None]:
    descriptor = os.open(path_of(workflow), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _wait(descriptor, mode, patience_s, workflow)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, mode: int, patience_s: float, workflow: Workflow) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise GateBusy(
                    f"The code of {workflow.slug} is being read or saved by someone else for {patience_s:.0f} s."
                    " Nothing was changed. Try again."
                ) from None
            time.sleep(PAUSE_S)
        else:
            return
