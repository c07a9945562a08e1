"""Finds holders of leases that are gone, ends what they left running, and records the loss: once, whoever looks."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from apps import storing
from apps.runs import leases, losses, whereabouts
from apps.runs.errors import LeaseLost
from apps.runs.leases import Keeper, Lease
from apps.runs.losses import Loss
from apps.runs.models import Run
from apps.runs.timing import FOREIGN_S, LEASE_S
from engine.sandbox import processes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Held:
    """A lease as its row shows it."""

    run_id: uuid.UUID
    fence: int
    beat: int
    pid: int
    pid_started: str
    host: str

    @property
    def is_here(self) -> bool:
        return self.host == whereabouts.host()

    @property
    def is_alive(self) -> bool:
        """Whether the holder runs, as far as this host can say: it cannot of another one."""
        if whereabouts.gone_with_its_boot(self.host):
            return False
        return not self.is_here or processes.alive(self.pid, self.pid_started)


class Reaper:
    """Looks at every lease. `leading` lets it take those of other hosts too, after their own supervisors' turn."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[uuid.UUID, tuple[int, int, float]] = {}
        self._unstorable = ""

    def look(self, *, leading: bool = True) -> list[uuid.UUID]:
        """One round; the runs whose loss this call recorded."""
        held = _held()
        self._seen = {one.run_id: self._sighting(one) for one in held}
        try:
            reaped = [one.run_id for one in held if self._is_lost(one, leading) and self._reap(one)]
        except Exception as wrong:
            self._unstorable = storing.why_not(wrong)
            raise
        self._unstorable = ""
        return reaped

    def _explained(self, loss: Loss) -> Loss:
        """A full disk that kept this reaper from its duty has kept the holder from renewing, as far as one can say."""
        why = f" Nothing could be stored at that time: {self._unstorable}." if self._unstorable else ""
        return replace(loss, detail=f"{loss.detail}{why}")

    def _sighting(self, one: Held) -> tuple[int, int, float]:
        known = self._seen.get(one.run_id)
        if known is not None and known[:2] == (one.fence, one.beat):
            return known
        return (one.fence, one.beat, self._clock())

    def _is_lost(self, one: Held, leading: bool) -> bool:
        silent = self._clock() - self._seen[one.run_id][2]
        if not one.is_alive:
            return True
        return silent > LEASE_S if one.is_here else leading and silent > LEASE_S + FOREIGN_S

    def _reap(self, one: Held) -> bool:
        lease = leases.take_over(one.run_id, one.fence, one.beat)
        if lease is None:  # it moved, or another reaper was first
            return False
        try:
            with Keeper(lease):
                losses.record_loss(lease, self._explained(_end(one, lease)))
        except LeaseLost:
            return False
        except Exception:
            logger.exception("The loss of run %s could not be recorded; it is tried again.", one.run_id)
            return False
        logger.warning("Run %s lost its worker (pid %s on %s).", one.run_id, one.pid, one.host)
        return True


def _held() -> list[Held]:
    rows = Run.objects.running().exclude(lease_pid=None)
    names = ("pk", "fence", "lease_beat", "lease_pid", "lease_pid_started", "lease_host")
    return [Held(*row) for row in rows.values_list(*names)]


def _end(one: Held, lease: Lease) -> Loss:
    """Kills the old tree and sees it gone, if this is its host; else nobody can say."""
    attempt = losses.open_attempt(Run.objects.get(pk=lease.run_id))
    alive = one.is_alive
    detail = "The worker stopped renewing its lease." if alive else "The worker died."
    if attempt is None or not (one.is_here or alive):
        return Loss("worker_lost", detail)
    if not one.is_here:
        return Loss("host_lost", f"The host {one.host} was not heard of any more.", tree_gone=attempt.pid is None)
    if attempt.pid is None:
        # The holder may be about to let a sandbox go: it must not, and a sandbox dies with the process that started it.
        return Loss("worker_lost", detail, tree_gone=not alive or _end_holder(one))
    return Loss("worker_lost", detail, tree_gone=processes.kill_tree(attempt.pid, attempt.pid_started))


def _end_holder(one: Held) -> bool:
    if one.pid == whereabouts.here().pid:
        return True
    return processes.kill_tree(one.pid, one.pid_started)
