"""One attempt: rows into an Ask, contract, session, runner, and the ending back into rows.

Nothing here decides what a step may do (engine.contract) or what follows (engine.outcomes).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from pydantic import JsonValue

from apps import rows
from apps.accounts.errors import Refused
from apps.runs import leases, listening, moves, mutations, outputs, sockets, whereabouts
from apps.runs.errors import LeaseLost
from apps.runs.events import News
from apps.runs.inputs import Inputs
from apps.runs.kinds import Kind
from apps.runs.leases import Keeper, Lease
from apps.runs.models import Attempt, Run, StepRun
from apps.runs.starting import UNTRIGGERED
from apps.runs.timing import START_DEADLINE_S
from apps.tools import actions as tools
from apps.tools.models import ToolSession
from apps.workflows import gate, places, unfinished, vault
from apps.workflows.models import Workflow
from engine import contract as contracts
from engine import outcomes, runner
from engine.contract import Ask, ContractRefused, Dependency
from engine.document import Plan, Step
from engine.keyfiles import read_or_make
from engine.outcomes import After, Ended, Outcome
from engine.runner import Ending
from engine.sandbox import host
from engine.sandbox.host import HostTools
from engine.states import StepStatus


@dataclass(frozen=True)
class Work:
    """The step that is to be attempted, and what its run knows."""

    run: Run
    plan: Plan
    steps: Mapping[str, StepRun]
    step_id: str
    inputs: Inputs

    @property
    def step(self) -> Step:
        found = self.plan.step(self.step_id)
        if found is None:
            raise LookupError(f"{self.step_id} is no step of the plan.")
        return found

    @property
    def row(self) -> StepRun:
        return self.steps[self.step_id]


@dataclass(frozen=True)
class Attempted:
    """An attempt that has ended and is not recorded yet."""

    row: Attempt
    ending: Ending
    after: After
    findings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def reason(self) -> str:
        return "" if self.ending.outcome == Outcome.SUCCEEDED else self.ending.detail or self.ending.reason

    def close(self, lease: Lease) -> list[News]:
        """Writes the attempt's end and ends its session, in the caller's transaction; the events that tell of it.

        The caller records them with the lease's fence, which takes everything back when the lease is lost.
        """
        ending = self.ending
        changes = {
            "outcome": ending.outcome,
            "reason": ending.reason[:64],
            "detail": ending.detail,
            "exit_code": ending.exit_code,
            "policy": ending.policy,
            "code_digest_end": ending.code_digest_end,
            "validation": ending.validation,
            "claims": ending.claims,
            "seal": ending.seal,
            "outputs": [_output(one) for one in ending.outputs],
            "started_at": ending.started_at,
            "finished_at": ending.finished_at,
            **({"findings": self.findings} if self.findings else {}),
        }
        rows.update(Attempt, changes, "id = %s AND outcome = ''", [rows.key(self.row.pk)])
        if self.row.session_id:
            tools.end_session(self.row.session_id, f"attempt_{ending.outcome}")
        ids = {"step_id": self.row.step_run.step_id, "attempt_id": str(self.row.pk)}
        data = {
            "number": self.row.number,
            "outcome": ending.outcome,
            "reason": ending.reason,
            "exit_code": ending.exit_code,
        }
        return [News(Kind.ATTEMPT_ENDED, ids, data)]


def make(lease: Lease, keeper: Keeper, work: Work) -> Attempted:
    """Makes one attempt of the step, from its row to its ending. Raises LeaseLost when the run is another's by then."""
    borrowed = _borrowed(work)
    row, token = _open(lease, work, borrowed)
    keeper.starts(START_DEADLINE_S)
    with ExitStack() as stack:
        stopped = listening.stopped_unstarted(lease, keeper)
        try:
            # Until the code's digest is read and its grants are open.
            stack.enter_context(_code_as_saved(work.run.workflow, stopped))
            contract = contracts.resolve(_ask(work, row, token, borrowed, stopped))
        except ContractRefused as refused:
            keeper.released()
            if keeper.lost:
                raise LeaseLost(f"Run {lease.run_id} was taken over before its step could start.") from None
            return _refused(row, refused)
        listeners = listening.Listening(lease, keeper, row, contract, stack.pop_all())
        with listeners:
            ending = runner.execute(contract, listeners)
    keeper.released()
    if ending.reason == runner.StopKind.LEASE_LOST or keeper.lost:
        raise LeaseLost(f"Run {lease.run_id} was taken over while {work.step_id} ran; its processes are ended.")
    return Attempted(row, ending, _after(work, row, ending))


@contextmanager
def _code_as_saved(workflow: Workflow, stopped: Callable[[], bool]) -> Iterator[None]:
    """No save of the workflow's code is at work within this. Raises ContractRefused when that cannot be had."""
    with ExitStack() as stack:
        try:
            stack.enter_context(unfinished.shared(workflow, stopped))
        except gate.GivenUp:
            detail = "It was cancelled while it waited for an import of its workflow to end. Nothing was started."
            raise ContractRefused(Outcome.CANCELLED, "cancelled", detail) from None
        except Refused as refused:
            raise ContractRefused(Outcome.HARNESS_REJECTED, refused.code, refused.detail) from None
        yield


def _open(lease: Lease, work: Work, borrowed: Mapping[str, Attempt]) -> tuple[Attempt, str]:
    """The attempt's row and session, before anything of it happens: what is not written down was not started."""
    run, step, now = work.run, work.step, timezone.now()
    number = _next_number(work.row)
    with transaction.atomic():
        row = Attempt(
            step_run=work.row,
            number=number,
            plan_revision=run.workflow.revision,
            host=whereabouts.host(),
            queued_at=now,
        )
        leases.record(lease, News(Kind.STEP_STARTED, {"step_id": step.id}))
        opened = tools.open_session(
            kind=ToolSession.Kind.STEP,
            name=f"step {step.id} of run {str(run.pk)[-8:]}",
            workflow=run.workflow,
            acting_user=run.owner,
            tools=step.tools,
            parent=ToolSession(pk=run.session_id),
            run_id=run.pk,
            step_id=step.id,
            attempt_id=row.pk,
            db_access=step.access.db,
            now=now,
        )
        row.session_id = opened.session.pk
        rows.insert([row])
        moves.move_step(
            work.row,
            StepStatus.RUNNING,
            started_at=work.row.started_at or now,
            reason="",
            reused_files=_named(borrowed),
        )
    return row, opened.token or ""


def _ask(work: Work, row: Attempt, token: str, borrowed: Mapping[str, Attempt], stopped: Callable[[], bool]) -> Ask:
    run, step = work.run, work.step
    whole = places.places_of(run.workflow)
    allowed = frozenset(run.workflow.secret_names)
    named = [secret.name for secret in step.secrets if secret.name in allowed]
    return Ask(
        step=step,
        plan_revision=row.plan_revision,
        data=places.data_places(),
        workflow=whole,
        host=host_tools(),
        digest_key=read_or_make(settings.PULSE_DATA / "secrets" / "digest.key").encode(),
        workflow_id=str(run.workflow_id),
        run_id=str(run.pk),
        step_run_id=str(work.row.pk),
        attempt_id=str(row.pk),
        attempt_number=row.number,
        entry_path=run.entry_path,
        group=run.group,
        group_values=run.group_values,
        run_variables=work.inputs.variables,
        parameters=work.inputs.parameters.get(step.id, {}),
        secrets=vault.secrets_for(run.workflow, named) if named else {},
        allowed_secrets=allowed,
        locked_steps=frozenset(one.id for one in work.plan.steps if one.lock_code),
        dependencies=_dependencies(work, borrowed),
        delivery=None if run.entry_path in UNTRIGGERED else whole.delivery(str(run.pk)),
        session_token=token,
        tools_socket=sockets.new_path(),
        ambient=dict(os.environ),
        stopped=stopped,
        ceiling=settings.PULSE_LIMITS,
    )


def _next_number(step: StepRun) -> int:
    if step.started_at is None:
        return 1
    return (step.attempts.order_by("-number").values_list("number", flat=True).first() or 0) + 1


def _borrowed(work: Work) -> dict[str, Attempt]:
    """For a step that runs by itself: the newest succeeded attempts of what it depends on, whatever their run."""
    if not work.run.only_step:
        return {}
    found = {
        one.path: outputs.latest_of_workflow(one.producer, work.run.workflow_id)
        for one in work.step.context_dependencies
    }
    return {path: attempt for path, attempt in found.items() if attempt is not None}


def _named(borrowed: Mapping[str, Attempt]) -> list[dict[str, str]] | None:
    """As it is kept with the step: which file came from where."""
    return [
        {"path": path, "run_id": str(attempt.step_run.run_id), "attempt_id": str(attempt.pk)}
        for path, attempt in borrowed.items()
    ] or None


def _dependencies(work: Work, borrowed: Mapping[str, Attempt]) -> dict[str, Dependency]:
    found: dict[str, Dependency] = {}
    for declared in work.step.context_dependencies:
        producer = work.steps.get(declared.producer)
        if producer is not None:
            folder = outputs.of_step(producer)
        else:
            latest = borrowed.get(declared.path)
            folder = outputs.of_attempt(latest) if latest else None
        if folder is not None:
            found[declared.path] = Dependency(folder, declared.file)
    return found


def _refused(row: Attempt, refused: ContractRefused) -> Attempted:
    now = timezone.now()
    ending = Ending(refused.outcome, refused.reason, refused.detail, started_at=now, finished_at=now)
    after = outcomes.decide_after(Ended(Outcome(refused.outcome), tries=row.number))
    return Attempted(row, ending, after, [finding.record() for finding in refused.findings])


def _after(work: Work, row: Attempt, ending: Ending) -> After:
    step = work.step
    if ending.outcome == Outcome.SUCCEEDED:
        return outcomes.decide_after(Ended(Outcome.SUCCEEDED, tries=row.number))
    mutations.read_back(row.pk)
    made = mutations.of_step(work.run.pk, step.id)
    earlier = row.step_run.attempts.exclude(pk=row.pk)
    return outcomes.decide_after(
        Ended(
            outcome=Outcome(ending.outcome),
            tries=1 + earlier.filter(outcome__in=outcomes.RETRIED).count(),
            losses=earlier.filter(outcome=Outcome.WORKER_LOST).count() + (ending.outcome == Outcome.WORKER_LOST),
            max_attempts=step.retry.max_attempts,
            backoff_s=step.retry.backoff_s,
            idempotent=step.idempotent,
            tree_gone=ending.tree_gone,
            unknown=made.unknown,
            applied=made.applied,
        )
    )


def host_tools() -> HostTools:
    """What launches use on this host, found once a process. Raises SandboxRefused."""
    global _host  # noqa: PLW0603
    if _host is None:
        _host = host.find(
            settings.PULSE_DATA,
            bwrap=settings.PULSE_BWRAP,
            interpreter=settings.PULSE_PYTHON,
            runner_uid=settings.PULSE_RUNNER_UID,
        )
    return _host


_host: HostTools | None = None


def _output(one: runner.Output) -> dict[str, JsonValue]:
    return {
        "path": one.path,
        "bytes": one.bytes,
        "sha256": one.sha256,
        "problem": one.problem,
        "contains_secret": one.contains_secret,
    }
