"""Tools and sessions over HTTP: the same dispatcher as the socket's (BEHAVIOUR 6)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import Router, Schema, Status
from pydantic import ConfigDict, Field

from apps.accounts import api_base, limits
from apps.accounts.access import Permission
from apps.accounts.api_base import Caller, Page
from apps.accounts.errors import Forbidden
from apps.tools import actions, catalogue, dispatch, wire
from apps.tools.envelope import Call, Envelope, failure
from apps.tools.errors import Code, SessionRefused
from apps.tools.http_desk import HttpDesk
from apps.tools.models import ToolSession
from apps.tools.rights import required_permission
from apps.workflows.access import workflow_in
from engine.document.release import ACCESS
from engine.ids import uuid7

router = Router()

UNKNOWN_TOKENS = {"most": 1000, "seconds": 300}  # from one address: each costs a diagnostic
STATUS = {
    Code.SESSION_UNKNOWN: 401,
    Code.SESSION_ENDED: 401,
    Code.TOOL_NOT_FOUND: 404,
    Code.NOT_FOUND: 404,
    Code.TOOL_RATE: 429,
    Code.BUSY: 503,
    Code.UNAVAILABLE: 503,
    Code.MESSAGE_TOO_LARGE: 413,
    Code.CALL_CONFLICT: 409,
    Code.DATABASE_ALTERED: 409,
    Code.UNKNOWN: 409,
    Code.MALFORMED: 400,
    Code.ARGUMENTS_REJECTED: 422,
    Code.SQL_ERROR: 422,
    Code.LIMIT_EXCEEDED: 422,
    Code.RESULT_TOO_LARGE: 422,
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The tool's arguments, or {arguments, session}. Literal JSON.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    "parameters": [
        {
            "in": "header",
            "name": "Idempotency-Key",
            "schema": {"type": "string", "format": "uuid"},
            "description": "The call's id, made once for each call: the same id is never done twice.",
        },
        {
            "in": "header",
            "name": "X-Pulse-Session",
            "schema": {"type": "string", "format": "uuid"},
            "description": "A session the call names: its own or the authority's, else not_owner.",
        },
    ],
}


class SessionIn(Schema):
    """A session for a client. What its tools need of the database it is given."""

    model_config = ConfigDict(extra="forbid")
    kind: Literal["chat", "api"]
    workflow: str = Field(description="The workflow's slug.", max_length=64)
    tools: list[str] = Field(min_length=1, max_length=64)
    name: str = Field(default="", max_length=120)


class SessionOut(Schema):
    id: UUID
    kind: str
    name: str
    workflow: str
    tools: list[str]
    db_access: str
    state: str
    parent: UUID | None
    run_id: UUID | None
    opened_at: datetime
    ended_at: datetime | None
    end_reason: str


class SessionMade(SessionOut):
    token: str = Field(description="Shown this once.")


@router.post("/tools/{tool}", auth=None, summary="Call a tool", openapi_extra=_BODY)
def call_tool(request: HttpRequest, tool: str) -> HttpResponse:
    """One call with a session's bearer token. The answer is `{success, result, error}` whatever its status."""
    token = _bearer(request)
    if token is None:
        return api_base.problem(request, 401, "token_required", "A session's bearer token is needed. Nothing was done.")
    address = request.META.get("REMOTE_ADDR", "")
    api_base.slow_down(limits.spent("no-session", address, **UNKNOWN_TOKENS))
    digest = actions.token_digest(token)
    try:
        call = _read_call(request, tool, digest)
    except wire.Malformed as error:
        return _answered(failure(Code.MALFORMED, f"{error} Nothing was done."), "")
    desk = HttpDesk(digest)
    try:
        envelope = dispatch.call(call, desk)
    finally:
        desk.close()
    if envelope.code == Code.SESSION_UNKNOWN:
        limits.spend("no-session", address, **UNKNOWN_TOKENS)
    return _answered(envelope, str(call.call_id))


@router.post("/sessions", response={201: SessionMade}, summary="Open a session")
def open_session(request: HttpRequest, body: SessionIn) -> Status[dict[str, Any]]:
    """A chat or api session on a workflow, with its own allow list. Its token is in this answer and nowhere else."""
    db_access = _db_access(body.tools)
    caller = api_base.require(request, required_permission(body.kind, db_access))
    workflow = workflow_in(caller.team, body.workflow)
    with transaction.atomic():
        opened = actions.open_session(
            kind=body.kind,
            name=body.name or f"{body.kind} of {caller.user.get_username()}",
            workflow=workflow,
            acting_user=caller.user,
            tools=body.tools,
            db_access=db_access,
        )
    return Status(201, _shown(opened.session) | {"token": opened.token})


@router.get("/sessions", response=Page[SessionOut], summary="List sessions")
def list_sessions(request: HttpRequest, state: str = "", cursor: str | None = None, limit: int = 50) -> dict[str, Any]:
    """The team's sessions, newest first."""
    caller = api_base.require(request, Permission.READ)
    rows = ToolSession.objects.for_team(caller.team.pk).select_related("workflow")
    if state:
        rows = rows.filter(state=state)
    found, following = api_base.paginate(rows, cursor=cursor, limit=limit)
    return {"items": [_shown(row) for row in found], "next_cursor": following}


@router.get("/sessions/{session_id}", response=SessionOut, summary="Read a session")
def read_session(request: HttpRequest, session_id: UUID) -> dict[str, Any]:
    caller = api_base.require(request, Permission.READ)
    return _shown(_session(caller, session_id))


@router.delete("/sessions/{session_id}", response={204: None}, summary="End a session")
def end_session(request: HttpRequest, session_id: UUID) -> Status[None]:
    """End a session of a client, one's own or, for an editor, anyone's. A run's sessions end with the run."""
    caller = api_base.require(request, Permission.RUN)
    session = _session(caller, session_id)
    if session.kind not in (ToolSession.Kind.CHAT, ToolSession.Kind.API):
        raise SessionRefused("A run's sessions end with the run. Nothing was done. Cancel the run instead.")
    if session.acting_user_id != caller.user.pk and not caller.may(Permission.EDIT):
        raise Forbidden("This session is someone else's. Nothing was done.")
    with transaction.atomic():
        actions.end_session(session.pk, f"ended by {caller.user.get_username()}")
    return Status(204, None)


def _bearer(request: HttpRequest) -> str | None:
    """The one bearer token; two credentials are none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" and token and "," not in token else None


def _read_call(request: HttpRequest, tool: str, token_sha256: str) -> Call:
    body = wire.parse(request.body or b"{}")
    if not isinstance(body, dict):
        raise wire.Malformed("The body must be an object.")
    named = [request.headers["X-Pulse-Session"]] if "X-Pulse-Session" in request.headers else []
    arguments = body
    if isinstance(body.get("arguments"), dict) and set(body) <= {"arguments", "session"}:
        arguments = body["arguments"]
        if isinstance(body.get("session"), str):
            named.append(body["session"])
    key = request.headers.get("Idempotency-Key")
    call_id = uuid7() if key is None else wire.call_id(key)
    return Call(call_id, tool, arguments, token_sha256, tuple(named))


def _answered(envelope: Envelope, call_id: str) -> HttpResponse:
    status = 200 if envelope.success else STATUS.get(Code(envelope.code), 403)
    response = JsonResponse({"id": call_id, **envelope.as_json()}, status=status)
    if len(response.content) > wire.MAX_FRAME:
        too_large = failure(Code.RESULT_TOO_LARGE, "The result is larger than 4 MB.", "Take it in pages.")
        response = JsonResponse({"id": call_id, **too_large.as_json()}, status=422)
    return response


def _db_access(tools: list[str]) -> str:
    needs = [definition.needs_db for definition in map(catalogue.find, tools) if definition is not None]
    return max(needs, key=ACCESS.index, default="none")


def _session(caller: Caller, session_id: UUID) -> ToolSession:
    row = ToolSession.objects.for_team(caller.team.pk).select_related("workflow").filter(pk=session_id).first()
    if row is None:
        raise Http404("No such session.")
    return row


def _shown(session: ToolSession) -> dict[str, Any]:
    return {
        "id": session.pk,
        "kind": session.kind,
        "name": session.name,
        "workflow": session.workflow.slug,
        "tools": sorted(catalogue.callable_with(frozenset(session.tools), session.db_access)),
        "db_access": session.db_access,
        "state": session.state,
        "parent": session.parent_id,
        "run_id": session.run_id,
        "opened_at": session.opened_at,
        "ended_at": session.ended_at,
        "end_reason": session.end_reason,
    }
