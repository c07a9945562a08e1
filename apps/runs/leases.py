"""The lease of a run: who may write for it. Claimed by conditional update, renewed in a thread, guarded by a fence.

The fence is raised by each new holder, and every write compares it. Whether a holder is still there is judged by its
beat, watched on the watcher's own monotonic clock: a jump of the wall clock takes no lease away.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeVar

from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models import F
from django.db.models.functions import Coalesce
from django.utils import timezone

from apps import storing
from apps.runs import events, slots, whereabouts
from apps.runs.errors import LeaseLost
from apps.runs.events import News
from apps.runs.kinds import Kind
from apps.runs.models import Run, Worker
from apps.runs.timing import FENCE_MARGIN_S, LEASE_S, RENEW_S, STORE_AGAIN_S
from apps.workflows.models import Workflow
from engine.sandbox import processes

logger = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Lease:
    """The right to write for one run, as long as no one has raised its fence."""

    run_id: uuid.UUID
    fence: int


def claim(run_id: uuid.UUID) -> Lease | None:
    """Takes a queued run and moves it to running; None when there is nothing to take.

    Without a free slot of its workflow the run stays queued, and says so. A process whose supervisor is about to stop
    takes nothing.
    """
    here = whereabouts.here()
    with transaction.atomic():
        # One claim of a workflow at a time; its row before its runs', as whoever takes both must.
        workflow = Workflow.objects.select_for_update(of=("self",), no_key=True).filter(runs__pk=run_id).first()
        run = Run.objects.locked().filter(pk=run_id, status=Run.Status.QUEUED).first()
        if workflow is None or run is None or _is_stopping(here) or not slots.take(run, workflow):
            return None
        claimed = Run.objects.filter(pk=run_id, status=Run.Status.QUEUED, fence=run.fence).update(
            status=Run.Status.RUNNING,
            reason="",
            reason_code="",
            wake_at=None,
            started_at=Coalesce(F("started_at"), timezone.now()),
            **_held_by(here),
        )
        if not claimed:
            return None
        lease = Lease(run_id, run.fence + 1)
        events.record(run_id, Kind.RUN_STARTED, data={"fence": lease.fence})
        return lease


def _is_stopping(here: whereabouts.Here) -> bool:
    if here.worker_id is None:
        return False
    return Worker.objects.filter(pk=here.worker_id).exclude(stopping_at=None).exists()


def take_over(run_id: uuid.UUID, fence: int, beat: int) -> Lease | None:
    """Takes a lease whose holder is lost, if it has not moved since it was looked at. For the reaper."""
    taken = Run.objects.filter(pk=run_id, status=Run.Status.RUNNING, fence=fence, lease_beat=beat).update(
        **_held_by(whereabouts.here())
    )
    return Lease(run_id, fence + 1) if taken else None


def renew(lease: Lease) -> bool:
    """False when another has the run now."""
    rows = Run.objects.filter(pk=lease.run_id, status=Run.Status.RUNNING, fence=lease.fence)
    return bool(rows.update(lease_beat=F("lease_beat") + 1))


def let_go() -> Mapping[str, object]:
    """The fields of a run that nobody holds, to go into the update that ends the holding."""
    return {"lease_worker": None, "lease_host": "", "lease_pid": None, "lease_pid_started": ""}


def record(lease: Lease, *news: News) -> int:
    """Writes events as the holder; `LeaseLost` when another has the run. The first write of each transaction."""
    return events.record_all(lease.run_id, news, fence=lease.fence)


def _held_by(here: whereabouts.Here) -> dict[str, object]:
    return {
        "fence": F("fence") + 1,
        "lease_beat": F("lease_beat") + 1,
        "lease_worker_id": here.worker_id,
        "lease_host": whereabouts.host(),
        "lease_pid": here.pid,
        "lease_pid_started": here.pid_started,
    }


class Keeper:
    """Keeps a lease while its run is carried on. Ends the sandbox by itself when it cannot, before the lease runs out.

    One thread renews; another watches the clock, since a database that does not answer holds up the first.
    """

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._lost = threading.Event()
        self._done = threading.Event()
        self._renewed = time.monotonic()
        self._tree: tuple[int, str] | None = None
        self._start_by: float | None = None
        self._threads = [
            threading.Thread(target=target, name=f"lease {lease.run_id}", daemon=True)
            for target in (self._keep, self._watch)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    def starts(self, deadline_s: float) -> None:
        """An attempt begins to start: without a process in so many seconds the lease is given up."""
        self._start_by = time.monotonic() + deadline_s

    def holds(self, pid: int, pid_started: str) -> None:
        """The process to end when the lease cannot be kept."""
        self._tree, self._start_by = (pid, pid_started), None

    def released(self) -> None:
        self._tree = self._start_by = None

    def require(self) -> None:
        if self.lost:
            raise LeaseLost(f"Run {self.lease.run_id} could not be kept under fence {self.lease.fence}.")

    def store(self, what: Callable[[], Result]) -> Result:
        """`what`, one transaction: tried again while nothing can be stored, for as long as the lease can be kept."""
        while True:
            try:
                return what()
            except Exception as wrong:
                why = storing.why_not(wrong)
                if not why or self.lost:
                    raise
                logger.warning("Run %s: nothing can be stored (%s). It is tried again.", self.lease.run_id, why)
                time.sleep(STORE_AGAIN_S)

    def _keep(self) -> None:
        try:
            while not self._done.wait(RENEW_S) and not self.lost:
                try:
                    kept = renew(self.lease)
                except Exception:  # a database that is away, a full disk, whatever it is: it is tried again
                    logger.warning("The lease of run %s could not be renewed.", self.lease.run_id, exc_info=True)
                    with suppress(DatabaseError, InterfaceError):
                        connection.close()
                    continue
                if not kept:
                    self._lost.set()
                self._renewed = time.monotonic()
        finally:
            connection.close()

    def _watch(self) -> None:
        while not self._done.wait(RENEW_S / 4):
            now = time.monotonic()
            late = now - self._renewed > LEASE_S - FENCE_MARGIN_S
            unstarted = self._start_by is not None and now > self._start_by
            if late or unstarted or self.lost:
                self._lost.set()
                self._fence()
                return

    def _fence(self) -> None:
        """The holder's own thread should end the attempt now; whether or not it can, the processes are ended here."""
        tree = self._tree
        if tree is None or self._done.wait(1.0):
            return
        logger.critical("The lease of run %s is lost: its processes are ended.", self.lease.run_id)
        processes.kill_tree(*tree)
