"""Runs over the API."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from datetime import datetime
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.utils import timezone
from ninja import Header, Router, Schema, Status
from pydantic import ConfigDict, Field, JsonValue

from apps.accounts.access import Permission
from apps.accounts.api_base import Caller, Page, Problem, check_range, one_of, paginate, require
from apps.runs import access, actions, api_proof, outputs, reading, silence
from apps.runs.actions import Choice, EntryPath
from apps.runs.errors import RunRefused
from apps.runs.models import Run, StartKey
from apps.workflows import access as workflows
from apps.workflows.models import Workflow
from engine.logs import LogReader

router = Router()
router.add_router("", api_proof.router)
REFUSED = {400: Problem, 401: Problem, 403: Problem, 404: Problem, 409: Problem, 422: Problem, 503: Problem}
LOG_MAX_BYTES = 1024 * 1024
LAST_SEQ = 2**31 - 1


class StartIn(Schema):
    """`parameters`, `route_selections` and `human_inputs` are keyed by step id."""

    model_config = ConfigDict(extra="forbid")
    group: str = ""
    variables: dict[str, JsonValue] = {}
    parameters: dict[str, dict[str, JsonValue]] = {}
    route_selections: dict[str, str] = {}
    human_inputs: dict[str, JsonValue] = {}


class ExecuteIn(Schema):
    model_config = ConfigDict(extra="forbid")
    group: str = ""
    script_parameters: dict[str, JsonValue] = {}


class RerunIn(Schema):
    """Neither: the whole run again. `from_step`: from there on, with earlier outputs. `only_failed`: what failed."""

    model_config = ConfigDict(extra="forbid")
    from_step: str = ""
    only_failed: bool = False


class SettleIn(Schema):
    model_config = ConfigDict(extra="forbid")
    step_id: str
    choice: Choice


class Accepted(Schema):
    """The run is durable; this says nothing of its outcome."""

    run_id: uuid.UUID
    status: str
    status_url: str


class RunRow(Schema):
    id: uuid.UUID
    workflow: str
    status: str
    reason: str
    unheard_since: datetime | None
    entry_path: str
    group: str
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class LogPiece(Schema):
    """Bytes of the masked log from `offset` on, as base64: logs need not be text."""

    offset: int
    next_offset: int
    total_bytes: int
    sealed: bool
    data_base64: str


@router.get("/runs", response={200: Page[RunRow], **REFUSED}, summary="Runs of the team, newest first")
def list_runs(
    request: HttpRequest, workflow: str = "", status: str = "", cursor: str | None = None, limit: int = 50
) -> dict[str, Any]:
    caller = require(request, Permission.READ)
    rows = Run.objects.filter(team=caller.team).select_related("workflow", "lease_worker")
    if workflow:
        rows = rows.filter(workflow__slug=workflow)
    if status:
        rows = rows.filter(status=one_of("status", status, list(Run.Status)))
    found, following = paginate(rows, cursor=cursor, limit=limit)
    return {"items": [_row(run) for run in found], "next_cursor": following}


@router.post("/workflows/{slug}/runs", response={200: Accepted, 202: Accepted, **REFUSED}, summary="Start a run")
def start_run(
    request: HttpRequest,
    slug: str,
    body: StartIn,
    idempotency_key: Annotated[str, Header(alias="Idempotency-Key", max_length=200)] = "",
) -> Status[Accepted]:
    """With an `Idempotency-Key` the same body names the same run for 7 days (200); another body is a 409."""
    caller = require(request, Permission.RUN)
    workflow = workflows.workflow_in(caller.team, slug)
    digest = hashlib.sha256(json.dumps(body.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()
    known = _known(workflow, idempotency_key, digest)
    if known is not None:
        return Status(200, _accepted(request, known))
    facts = body.model_dump()
    admitted = actions.check_start(workflow=workflow, **facts)
    try:
        with transaction.atomic():
            run = actions.start_run(**_who(caller, workflow), **facts, admitted=admitted)
            if idempotency_key:
                StartKey.objects.create(
                    workflow=workflow, key=idempotency_key, body_sha256=digest, run=run, made_at=timezone.now()
                )
    except IntegrityError:
        known = _known(workflow, idempotency_key, digest)
        if known is None:
            raise
        return Status(200, _accepted(request, known))
    return Status(202, _accepted(request, run))


@router.post(
    "/workflows/{slug}/steps/{step}/execute", response={202: Accepted, **REFUSED}, summary="Run one step by itself"
)
def execute_step(request: HttpRequest, slug: str, step: str, body: ExecuteIn) -> Status[Accepted]:
    """A run of scope `step`, with the latest succeeded outputs that the step needs."""
    caller = require(request, Permission.RUN)
    workflow = workflows.workflow_in(caller.team, slug)
    given = {step: body.script_parameters}
    run = actions.start_run(**_who(caller, workflow), group=body.group, parameters=given, only_step=step)
    return Status(202, _accepted(request, run))


@router.get("/runs/{run_id}", response={200: dict[str, Any], **REFUSED}, summary="One run, its steps and attempts")
def get_run(request: HttpRequest, run_id: uuid.UUID) -> dict[str, Any]:
    return reading.run_json(_run(request, run_id))


@router.get("/runs/{run_id}/events", response={200: dict[str, Any], **REFUSED}, summary="Events after a number")
def get_events(request: HttpRequest, run_id: uuid.UUID, after: int = 0, limit: int = 200) -> dict[str, Any]:
    """Numbered above `after`, at most `limit` of them."""
    check_range("limit", limit, 1, reading.MAX_EVENTS)
    check_range("after", after, 0, LAST_SEQ)
    run = _run(request, run_id)
    found = reading.events_after(run, after, limit)
    return {"items": [reading.event_json(event) for event in found], "last_seq": run.last_seq}


@router.get("/runs/{run_id}/steps/{step}/log", response={200: LogPiece, **REFUSED}, summary="A piece of a log")
def get_log(
    request: HttpRequest,
    run_id: uuid.UUID,
    step: str,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=LOG_MAX_BYTES)] = 65536,
    attempt: int = 0,
) -> LogPiece:
    run = _run(request, run_id)
    found = _attempt(run, step, attempt)
    with LogReader(outputs.of_attempt(found)) as reader:
        data, total = reader.bytes(offset, limit), reader.size()
    return LogPiece(
        offset=offset,
        next_offset=offset + len(data),
        total_bytes=total,
        sealed=found.seal is not None,
        data_base64=base64.b64encode(data).decode(),
    )


@router.get("/runs/{run_id}/steps/{step}/contract", response={200: dict[str, Any], **REFUSED}, summary="The contract")
def get_contract(request: HttpRequest, run_id: uuid.UUID, step: str, attempt: int = 0) -> dict[str, Any]:
    """The resolved contract of an attempt (the latest, unless `attempt` names one), without any secret value."""
    found = _attempt(_run(request, run_id), step, attempt)
    return {
        "attempt": found.number,
        "fingerprint": found.fingerprint,
        "inputs_digest": found.inputs_digest,
        "code_digest": found.code_digest,
        "code_digest_end": found.code_digest_end,
        "contract": found.contract,
        "policy": found.policy,
        "findings": found.findings,
    }


@router.post("/runs/{run_id}/cancel", response={202: Accepted, **REFUSED}, summary="Cancel a run")
def cancel_run(request: HttpRequest, run_id: uuid.UUID) -> Status[Accepted]:
    caller = require(request, Permission.RUN)
    run = access.run_in(caller.team, run_id)
    return Status(202, _accepted(request, actions.cancel_run(run, by=caller.user.get_username())))


@router.post("/runs/{run_id}/rerun", response={202: Accepted, **REFUSED, 410: Problem}, summary="Run it again")
def rerun(request: HttpRequest, run_id: uuid.UUID, body: RerunIn) -> Status[Accepted]:
    caller = require(request, Permission.RUN)
    run = access.run_in(caller.team, run_id)
    made = actions.rerun(run, by=caller.user, from_step=body.from_step, only_failed=body.only_failed)
    return Status(202, _accepted(request, made))


@router.post("/runs/{run_id}/settle", response={202: Accepted, **REFUSED}, summary="Decide on a step of unknown end")
def settle(request: HttpRequest, run_id: uuid.UUID, body: SettleIn) -> Status[Accepted]:
    caller = require(request, Permission.RUN)
    run = access.run_in(caller.team, run_id)
    settled = actions.settle_attention(run, by=caller.user, choice=body.choice, step_id=body.step_id)
    return Status(202, _accepted(request, settled))


def _run(request: HttpRequest, run_id: uuid.UUID) -> Run:
    return access.run_in(require(request, Permission.READ).team, run_id)


def _attempt(run: Run, step: str, number: int) -> Any:
    found = reading.attempt_of(run, step, number)
    if found is None:
        raise RunRefused(404, "not_found", "There is no such attempt.")
    if run.artifacts_expired:
        raise RunRefused(410, "artifacts_expired", "The files of this run were removed by retention.")
    return found


def _known(workflow: Workflow, key: str, digest: str) -> Run | None:
    row = StartKey.objects.select_related("run").filter(workflow=workflow, key=key).first() if key else None
    if row is None:
        return None
    if row.body_sha256 != digest:
        detail = "This Idempotency-Key was used with another body. No run was made. Send a new key with a new body."
        raise RunRefused(409, "idempotency_conflict", detail)
    return row.run


def _who(caller: Caller, workflow: Workflow) -> dict[str, Any]:
    by = f"{caller.user.get_username()} by token {caller.token.name}"
    return {"workflow": workflow, "entry_path": EntryPath.API, "initiated_by": by, "initiator": caller.user}


def _accepted(request: HttpRequest, run: Run) -> Accepted:
    url = request.build_absolute_uri(f"/api/v1/runs/{run.pk}")
    return Accepted(run_id=run.pk, status=run.status, status_url=url)


def _row(run: Run) -> dict[str, Any]:
    names = ("id", "status", "entry_path", "group", "queued_at", "started_at", "finished_at")
    row = {name: getattr(run, name) for name in names} | {"workflow": run.workflow.slug}
    return row | {"reason": run.reason or silence.words(run), "unheard_since": silence.since(run)}
