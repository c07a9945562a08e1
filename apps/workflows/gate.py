"""The code gate of a workflow: who changes several files takes it alone, who starts an attempt takes it with others.

An attempt holds it from the opening of its grants until its code digest is read, so that what was mounted is what was
digested. It is a flock on a file beside the code: it ends with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from apps.workflows import places
from apps.workflows.errors import GateBusy
from apps.workflows.models import Workflow

PAUSE_S = 0.01
PATIENCE_S = 30.0
SHARED_PATIENCE_S = 150.0  # an import holds it for as long as its migrations may take, and their snapshot


class GivenUp(Exception):
    """Who waited for the gate was asked to stop. Nothing was done."""


def never() -> bool:
    return False


@contextmanager
def shared(
    workflow: Workflow, *, patience_s: float = SHARED_PATIENCE_S, given_up: Callable[[], bool] = never
) -> Iterator[None]:
    """For the start of an attempt: many may hold it, none while code is being saved."""
    with _held(workflow, fcntl.LOCK_SH, patience_s, given_up):
        yield


@contextmanager
def exclusive(
    workflow: Workflow, *, patience_s: float = PATIENCE_S, given_up: Callable[[], bool] = never
) -> Iterator[None]:
    """For a save of code: nobody else holds it. Raises GateBusy, with nothing changed, when it does not become free."""
    with _held(workflow, fcntl.LOCK_EX, patience_s, given_up):
        yield


def path_of(workflow: Workflow) -> Path:
    return places.places_of(workflow).root / "code.gate"


@contextmanager
def _held(workflow: Workflow, mode: int, patience_s: float, given_up: Callable[[], bool]) -> Iterator[None]:
    descriptor = os.open(path_of(workflow), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _wait(descriptor, mode, patience_s, workflow, given_up)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, mode: int, patience_s: float, workflow: Workflow, given_up: Callable[[], bool]) -> None:
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
            if given_up():
                raise GivenUp from None
            time.sleep(PAUSE_S)
        else:
            return
