"""The supervisor: one a host. It starts no step itself; it sees to it that somebody can, and that nothing is lost."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable
from types import FrameType

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.utils import timezone

from apps.runs import whereabouts
from apps.runs.models import Run
from apps.runs.supervisor import rows, sweeper
from apps.runs.supervisor.cluster import Cluster
from apps.runs.supervisor.reaper import Reaper
from apps.runs.timing import CUT_S, HEARTBEAT_S, IDLE_ORPHAN, LONGEST_ROUND_S, START_CLUSTER_S, STUCK_CLUSTER_S, SWEEP_S
from apps.tools import closing
from apps.workflows import unfinished
from engine.sandbox import host, processes
from engine.sandbox.errors import SandboxRefused

TICK_S = 0.1
SLOWEST_RESTART_S = 10.0
logger = logging.getLogger(__name__)


class Supervisor:
    """`refusal` says why this host starts no step; then there is no cluster, and all the other duties."""

    def __init__(self, *, refusal: str = "") -> None:
        self.row = rows.register(rows.WORKER, slots=0 if refusal else settings.PULSE_RUN_SLOTS, refusal=refusal)
        self.takes_runs = not refusal
        self.cluster: Cluster | None = None
        self.retiring: list[Cluster] = []
        self.reaper = Reaper()
        self.stopping = False
        self._signals = 0
        self._leading = False
        self._told_cluster = 0
        self._mending = threading.Thread()
        self._began_duty = time.monotonic()
        self._oldest: tuple[uuid.UUID, float] | None = None
        self._restart_at, self._deaths = 0.0, 0
        self._duties = [
            _Duty(HEARTBEAT_S, self._beat),
            _Duty(SWEEP_S, lambda: self.reaper.look(leading=self._leading)),
            _Duty(SWEEP_S, self._sweep),
            _Duty(1.0, self._watch_cluster),
            _Duty(5.0, self._adopt),
            _Duty(5.0, self._seal),
            _Duty(10.0, self._mend_imports),
            _Duty(60.0, self._tidy),
        ]
        whereabouts.work_for(self.row.pk)

    def run(self) -> None:
        """Until SIGTERM or SIGINT, then a planned stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        logger.info("Worker %s: %s slots.", self.row.pk, self.row.slots)
        while not self.stopping:
            self.tick()
            time.sleep(TICK_S)
        self.stop()

    def tick(self) -> None:
        """Every duty that is due. A database that is away is waited for: the sandboxes end by their own clocks."""
        for duty in self._duties:
            self._do(duty)

    def goes_round(self) -> bool:
        """Whether its duties are done, one after the other, also when a database makes each of them wait."""
        return time.monotonic() - self._began_duty < LONGEST_ROUND_S

    def _do(self, duty: _Duty) -> None:
        self._began_duty = time.monotonic()
        duty.do_if_due()

    def stop(self) -> None:
        """The planned stop: stop taking, drain, then end what still runs; every end is recorded (BEHAVIOUR 10).

        A second signal ends the drain.
        """
        _tried(lambda: rows.mark(self.row.pk, stopping_at=timezone.now()))  # told or not, it stops
        clusters = [one for one in [self.cluster, *self.retiring] if one is not None]
        for cluster in clusters:
            cluster.stop_taking()
        if not self._wait_for(clusters, settings.PULSE_DRAIN_S, hurried=True):
            logger.warning("The drain is over; what still runs is ended.")
        _tried(self._cut_all)
        self._wait_for(clusters, CUT_S)
        for cluster in clusters:
            cluster.kill()
        _tried(lambda: self.reaper.look(leading=self._leading))
        _tried(lambda: rows.mark(self.row.pk, stopped_at=timezone.now()))

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping = True
        self._signals += 1

    def _wait_for(self, clusters: list[Cluster], seconds: float, *, hurried: bool = False) -> bool:
        deadline = time.monotonic() + seconds
        while any(cluster.alive for cluster in clusters):
            if time.monotonic() > deadline or (hurried and self._signals > 1):
                return False
            for duty in self._duties[:2]:
                self._do(duty)
            time.sleep(TICK_S)
        return True

    def _cut_all(self) -> None:
        """Also what a supervisor that died on this host has left behind."""
        now = timezone.now()
        rows.mark(self.row.pk, cut_at=now)
        for orphan in rows.adopt_orphans():
            rows.mark(orphan.pk, cut_at=now)
            if orphan.cluster_pid is not None and not processes.wait_gone(
                orphan.cluster_pid, orphan.cluster_started, CUT_S
            ):
                processes.kill_tree(orphan.cluster_pid, orphan.cluster_started)

    def _beat(self) -> None:
        rows.beat(self.row.pk)
        self._leading = rows.lead(self.row.pk)

    def _sweep(self) -> None:
        if self._leading:
            sweeper.sweep()

    def _adopt(self) -> None:
        """Clusters without a supervisor end after the running step by themselves; one that does not is ended."""
        for orphan in rows.adopt_orphans():
            told = orphan.stopping_at
            if told is None or timezone.now() - told < IDLE_ORPHAN or orphan.cluster_pid is None:
                continue
            if not Run.objects.running().filter(lease_worker=orphan).exists():
                logger.error("A cluster without a supervisor holds no run and does not end; it is ended.")
                processes.kill_tree(orphan.cluster_pid, orphan.cluster_started)

    def _seal(self) -> None:
        """Ledgers of sessions whose end nobody lived to finish."""
        if self._leading:
            closing.finish_ended()

    def _mend_imports(self) -> None:
        """In a thread of its own: what a workflow brings may take a while, and nothing else waits for it."""
        if self._leading and not self._mending.is_alive():
            self._mending = threading.Thread(target=_mend_imports, name="mend-imports", daemon=True)
            self._mending.start()

    def _tidy(self) -> None:
        self._end_half_launched()
        if self._leading:
            rows.tidy()
            sweeper.report_old()

    def _end_half_launched(self) -> None:
        """Sandboxes whose process died while it launched them: they run nothing, and would wait for ever."""
        with contextlib.suppress(SandboxRefused):
            processes.sweep(host.runner(settings.PULSE_DATA, settings.PULSE_RUNNER_UID).uid)

    def _watch_cluster(self) -> None:
        self.retiring = [one for one in self.retiring if not self._retired(one)]
        if not self.takes_runs:
            return
        if self.cluster is not None and not self.cluster.alive:
            logger.error("The cluster ended by itself; another one is started.")
            self._deaths += 1
            self._restart_at = time.monotonic() + min(0.2 * 2**self._deaths, SLOWEST_RESTART_S)
            self.cluster.kill()
            self.cluster = None
        if self.cluster is None and time.monotonic() >= self._restart_at:
            self._start_cluster()
        if self.cluster is not None and self._is_stuck(self.cluster):
            logger.error("The cluster takes no message though workers are free; another one takes its place.")
            self.retiring.append(self.cluster)
            self._start_cluster()
        self._tell_cluster()

    def _start_cluster(self) -> None:
        self.cluster = Cluster(self.row.pk)
        self._oldest = None

    def _tell_cluster(self) -> None:
        """Who finds this supervisor gone finds its cluster by its row: told until it is stored."""
        if self.cluster is not None and self.cluster.pid != self._told_cluster:
            rows.mark(self.row.pk, cluster_pid=self.cluster.pid, cluster_started=self.cluster.pid_started)
            self._told_cluster = self.cluster.pid

    def _is_stuck(self, cluster: Cluster) -> bool:
        """The oldest queued run stays though workers are free: a killed idle one may wedge them all (Q15)."""
        now = time.monotonic()
        waiting = Run.objects.queued().exclude(reason_code=Run.NO_SLOT).exclude(enqueued_at=None)
        oldest = waiting.order_by("queued_at", "pk").values_list("pk", flat=True).first()
        if oldest is None or self._oldest is None or self._oldest[0] != oldest:
            self._oldest = (oldest, now) if oldest else None
            return False
        if now - cluster.began > 60:
            self._deaths = 0
        waited = now - max(self._oldest[1], cluster.began + START_CLUSTER_S - STUCK_CLUSTER_S)
        return waited > STUCK_CLUSTER_S and cluster.busy() < self.row.slots

    def _retired(self, cluster: Cluster) -> bool:
        """A cluster that was replaced is ended once none of its processes holds a lease."""
        if cluster.alive and cluster.busy():
            return False
        cluster.kill()
        return True


def _mend_imports() -> None:
    try:
        unfinished.mend_all()
    finally:
        connection.close()


class _Duty:
    def __init__(self, every_s: float, what: Callable[[], object]) -> None:
        self.every_s, self.what = every_s, what
        self._due = 0.0

    def do_if_due(self) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self.every_s
        _tried(self.what)


def _tried(what: Callable[[], object]) -> None:
    try:
        what()
    except DatabaseError:
        logger.exception("The database did not answer; it is asked again.")
        with contextlib.suppress(DatabaseError, InterfaceError):
            connection.close()
    except Exception:
        logger.exception("A fault of ours in a duty of the supervisor; the others go on.")
