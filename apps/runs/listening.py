"""What the runner tells and asks while an attempt runs (engine.runner.Listeners), answered from rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any, Self

from django.db import DatabaseError, transaction
from django.utils import timezone

from apps import rows
from apps.runs import leases
from apps.runs.errors import LeaseLost
from apps.runs.events import News
from apps.runs.kinds import Kind
from apps.runs.leases import Keeper, Lease
from apps.runs.models import Attempt, Run
from apps.tools.endpoint import ToolEndpoint
from apps.tools.errors import ToolFailure
from apps.tools.work import Databases
from apps.tools.workflow_db import reading
from engine.contract import Contract
from engine.runner import Stop, StopKind
from engine.validation import QueryFailed

logger = logging.getLogger(__name__)
GREW_EVERY_S = 1.0
ASK_EVERY_S = 0.1
WISHES = ("fence", "status", "cancel_requested_at", "cancel_requested_by", "lease_worker__cut_at")

_HELD = (
    "id = %s AND EXISTS (SELECT 1 FROM runs_steprun s JOIN runs_run r ON r.id = s.run_id"
    " WHERE s.id = runs_attempt.step_run_id AND r.fence = %s AND r.status = 'running'"
    " AND r.cancel_requested_at IS NULL)"
)


def stopped_unstarted(lease: Lease, keeper: Keeper) -> Callable[[], bool]:
    """Whether an attempt that has not started is to be given up: it was cancelled, or the run is another's."""
    ask_at = monotonic() + ASK_EVERY_S

    def stopped() -> bool:
        nonlocal ask_at
        if keeper.lost:
            return True
        if monotonic() < ask_at:
            return False
        ask_at = monotonic() + ASK_EVERY_S
        return not Run.objects.filter(pk=lease.run_id, fence=lease.fence, cancel_requested_at=None).exists()

    return stopped


class Listening:
    """The listeners of one attempt. `until_started` is let go once the sandbox holds what it guards."""

    def __init__(
        self, lease: Lease, keeper: Keeper, row: Attempt, contract: Contract, until_started: ExitStack
    ) -> None:
        self.lease = lease
        self.keeper = keeper
        self.row = row
        self.contract = contract
        self._until_started = until_started
        self._endpoint: ToolEndpoint | None = None
        self._told = monotonic()
        self._ask_at = monotonic() + ASK_EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._until_started.close()
        if self._endpoint is not None:
            self._endpoint.close()

    def arm(self, socket: Path) -> Stop | None:
        if self.row.session_id is None:
            raise LookupError("An attempt has its session before its tools are served.")
        most = self.contract.limits.tool_calls
        self._endpoint = ToolEndpoint(self.row.session_id, fence=self.lease.fence, max_calls=most)
        stop: Stop | None = None

        def must_end() -> bool:
            nonlocal stop
            stop = self.stop_wanted()
            return stop is not None

        self._endpoint.arm(socket, must_end)
        return stop

    def close_tools(self) -> None:
        """At once, so that the processes are ended next; what was in flight is waited for at the end of all."""
        if self._endpoint is not None:
            self._endpoint.shut()

    def started(self, pid: int, pid_started: str) -> Stop | None:
        """The code is let go only after this is committed: without a pid in its row an attempt never ran."""
        self.keeper.holds(pid, pid_started)
        contract = self.contract
        changes = {
            "pid": pid,
            "pid_started": pid_started,
            "started_at": timezone.now(),
            "contract": contract.record(),
            "fingerprint": contract.fingerprint,
            "inputs_digest": contract.inputs_digest,
            "code_digest": contract.code_digest,
            "findings": [finding.record() for finding in contract.findings],
        }
        self._until_started.close()
        ids = {"step_id": self.row.step_run.step_id, "attempt_id": str(self.row.pk)}
        try:
            with transaction.atomic():  # pages are told with the row: before it there is no contract to show
                leases.record(self.lease, News(Kind.ATTEMPT_STARTED, ids, {"number": self.row.number}))
                if not rows.update(Attempt, changes, _HELD, [rows.key(self.row.pk), self.lease.fence]):
                    raise LeaseLost(f"Run {self.lease.run_id} was taken over or cancelled before its step could start.")
        except LeaseLost:
            stop = self._wish()
            if stop is None:
                raise
            return stop
        return None

    def log_grew(self, lines: int, size: int) -> None:
        if monotonic() - self._told < GREW_EVERY_S:
            return
        self._told = monotonic()
        ids = {"step_id": self.row.step_run.step_id, "attempt_id": str(self.row.pk)}
        try:
            with transaction.atomic():
                leases.record(self.lease, News(Kind.LOG_GREW, ids, {"lines": lines, "bytes": size}))
        except DatabaseError:  # pages find the lines themselves; no attempt ends for it
            logger.warning("That the log of attempt %s grew could not be told.", self.row.pk, exc_info=True)

    def stop_wanted(self) -> Stop | None:
        if self.keeper.lost:
            return Stop(StopKind.LEASE_LOST)
        if monotonic() < self._ask_at:
            return None
        self._ask_at = monotonic() + ASK_EVERY_S
        return self._wish()

    def _wish(self) -> Stop | None:
        run = Run.objects.values(*WISHES).filter(pk=self.lease.run_id).first()
        if run is None or run["fence"] != self.lease.fence or run["status"] != Run.Status.RUNNING:
            return Stop(StopKind.LEASE_LOST)
        if run["cancel_requested_at"]:
            return Stop(StopKind.CANCELLED, f"Cancelled by {run['cancel_requested_by']}.")
        if run["lease_worker__cut_at"]:
            return Stop(StopKind.OPERATOR, "It had not ended when the time to drain was over (PULSE_DRAIN_S).")
        return None

    def boundary_refused(self) -> bool:
        return self._endpoint is not None and self._endpoint.boundary_refused

    def query(self, sql: str, limit: int) -> Sequence[dict[str, Any]]:
        """Raises QueryFailed for what the database refuses: that is a fault of the rule, not of the step."""
        workflow = self.row.step_run.run.workflow
        databases = Databases()
        found: list[dict[str, Any]] = []
        try:
            database = databases.of(workflow.team_id, workflow.pk)
            offset: int | None = 0
            while offset is not None and len(found) < limit:  # a page may end before its rows do, when they are large
                page = reading.query(database, sql, max_rows=limit - len(found), offset=offset)
                found += page["rows"]
                offset = page["next_offset"]
        except ToolFailure as refused:
            raise QueryFailed(refused.message.rstrip(".")) from None
        finally:
            databases.close()
        return found
