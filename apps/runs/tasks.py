"""What the queue may run: it takes an id, returns nothing, and is safe to run twice."""

from __future__ import annotations

import contextlib
import logging
import uuid

from apps import storing
from apps.accounts.errors import Refused
from apps.runs import endings, leases, losses, queue
from apps.runs.errors import LeaseLost
from apps.runs.leases import Keeper, Lease
from apps.runs.losses import Loss
from apps.runs.models import Run
from apps.runs.timing import FULL_AGAIN_S
from engine.sandbox import processes
from engine.sandbox.errors import SandboxRefused
from engine.states import RunStatus

logger = logging.getLogger(__name__)


def advance_run(run_id: str) -> None:
    """Takes the run's lease and carries the run on until it waits or ends. Without a lease to take it does nothing.

    The one boundary of the worker: a fault of ours ends here too, with its traceback in the log and its run told.
    """
    lease = leases.claim(uuid.UUID(run_id))
    if lease is None:
        queue.give_back(uuid.UUID(run_id))
        return
    with Keeper(lease) as keeper:
        try:
            _carry_on(lease, keeper)
        except LeaseLost as lost:
            logger.warning("%s", lost)
        except Exception as wrong:
            # Whatever it was, the run must not stay with a worker that gave it up.
            logger.exception("A fault of ours ended the work on run %s.", run_id)
            _give_up(lease, keeper, storing.why_not(wrong))


def prepare() -> None:
    """What a process needs for its first run, before the cluster forks: by itself each would take half a second for it.

    It opens nothing that a fork must not share. A sandbox that is refused here is told by the first run.
    """
    from apps.runs import advance, attempts  # noqa: F401 - heavy: only the worker needs them

    with contextlib.suppress(SandboxRefused):
        attempts.host_tools()


def _give_up(lease: Lease, keeper: Keeper, unstorable: str) -> None:
    try:
        keeper.store(lambda: _record_fault(lease, unstorable))
    except LeaseLost as lost:
        logger.warning("%s", lost)
    except Exception:
        # Its lease is renewed no more, so that the reaper takes the run; the queue's library keeps nothing of it.
        logger.exception("Run %s could not be given up in order.", lease.run_id)


def _carry_on(lease: Lease, keeper: Keeper) -> None:
    from apps.runs.advance import Advance  # heavy: only the worker needs what it imports

    try:
        Advance(lease, keeper).carry_on()
    except (Refused, SandboxRefused) as refused:
        run = Run.objects.get(pk=lease.run_id)
        if losses.open_attempt(run) is not None:
            raise
        code = str(getattr(refused, "code", "SANDBOX_UNAVAILABLE"))
        endings.finish(run, RunStatus.FAILED, reason=str(refused), reason_code=code[:32], fence=lease.fence)


def _record_fault(lease: Lease, unstorable: str) -> None:
    run = Run.objects.get(pk=lease.run_id)
    attempt = losses.open_attempt(run)
    code, detail = "platform_fault", "A fault of Pulse itself ended the work on this run; "
    if unstorable:
        code, detail = "not_stored", f"Nothing could be stored ({unstorable}): that ended the work on this run; "
    detail += "the log of the worker has its traceback."
    if attempt is None:
        endings.finish(run, RunStatus.FAILED, reason=detail, reason_code=code, fence=lease.fence)
        return
    gone = attempt.pid is None or processes.kill_tree(attempt.pid, attempt.pid_started)
    losses.record_loss(lease, Loss(code, detail, gone, again_in_s=FULL_AGAIN_S if unstorable else 0.0))
