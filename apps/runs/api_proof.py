"""The proof beside a run over the API: its tool calls, its sessions, and every refusal of ownership on either side."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema

from apps.accounts.access import Permission
from apps.accounts.api_base import Page, Problem, paginate, require
from apps.runs import access, evidence
from apps.runs.models import Run
from apps.tools.models import OwnershipDiagnostic, ToolCall, ToolSession

router = Router()
REFUSED = {401: Problem, 403: Problem, 404: Problem, 422: Problem}


class CallRow(Schema):
    """A row of the ledger. `verdict` is `allowed` or the code of the refusal."""

    call_id: uuid.UUID
    session: uuid.UUID
    authority: uuid.UUID
    run_id: uuid.UUID
    step_id: str
    attempt_id: uuid.UUID | None
    seq: int
    tool: str
    argument_digest: str
    verdict: str
    outcome: str
    error_code: str
    started_at: datetime
    duration_us: int


class SessionRow(Schema):
    id: uuid.UUID
    kind: str
    name: str
    parent: uuid.UUID | None
    step_id: str
    attempt_id: uuid.UUID | None
    state: str
    opened_at: datetime
    ended_at: datetime | None
    end_reason: str


class Rejection(Schema):
    """One refused call: all four sessions as they are logged, and the runs on both sides."""

    id: uuid.UUID
    tool: str
    reason: str
    caller: str
    tool_session: str
    authority: str
    caller_parent: str
    caller_run_id: uuid.UUID | None
    owner_run_id: uuid.UUID | None
    at: datetime


class OwnershipOut(Schema):
    """`items` are the refusals in which the run is on either side, newest first."""

    sessions: list[SessionRow]
    items: list[Rejection]
    next_cursor: str | None = None


@router.get("/runs/{run_id}/tool-calls", response={200: Page[CallRow], **REFUSED}, summary="Tool calls, newest first")
def list_tool_calls(
    request: HttpRequest, run_id: uuid.UUID, cursor: str | None = None, limit: int = 50
) -> dict[str, Any]:
    found, following = paginate(evidence.tool_calls(_run(request, run_id)), cursor=cursor, limit=limit)
    return {"items": [_call(row) for row in found], "next_cursor": following}


@router.get("/runs/{run_id}/ownership", response={200: OwnershipOut, **REFUSED}, summary="Sessions and refusals")
def read_ownership(
    request: HttpRequest, run_id: uuid.UUID, cursor: str | None = None, limit: int = 50
) -> dict[str, Any]:
    """The run's sessions, and each refusal of ownership that names the run as the caller's or the owner's."""
    run = _run(request, run_id)
    found, following = paginate(evidence.rejections(run), cursor=cursor, limit=limit)
    return {
        "sessions": [_session(row) for row in evidence.sessions(run)],
        "items": [_rejection(row) for row in found],
        "next_cursor": following,
    }


def _run(request: HttpRequest, run_id: uuid.UUID) -> Run:
    return access.run_in(require(request, Permission.READ).team, run_id)


def _call(row: ToolCall) -> dict[str, Any]:
    names = set(CallRow.model_fields) - {"session", "authority"}
    return {name: getattr(row, name) for name in names} | {"session": row.session_id, "authority": row.authority_id}


def _session(row: ToolSession) -> dict[str, Any]:
    names = set(SessionRow.model_fields) - {"parent"}
    return {name: getattr(row, name) for name in names} | {"parent": row.parent_id}


def _rejection(row: OwnershipDiagnostic) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Rejection.model_fields}
