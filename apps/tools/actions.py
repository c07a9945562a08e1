"""Every write to sessions. Each is called inside the caller's transaction and takes effect with it."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps import rows
from apps.accounts import access
from apps.accounts.models import User
from apps.accounts.roles import Role
from apps.tools import catalogue, closing, driver
from apps.tools.errors import Code, SessionRefused
from apps.tools.models import ToolSession
from apps.tools.rights import AUTHORITIES, required_permission
from apps.workflows.models import Workflow
from engine.document.release import ACCESS

TOKEN_MARK = "pst_"  # noqa: S105
Kind = ToolSession.Kind
State = ToolSession.State


@dataclass(frozen=True)
class Opened:
    """A new session. `token` is known only now: its SHA-256 is kept, the text nowhere."""

    session: ToolSession
    token: str


@dataclass(frozen=True)
class RunSession:
    """The session that a run is to have."""

    run_id: UUID
    name: str
    workflow: Workflow
    acting_user: User
    tools: Collection[str]
    db_access: str


def token_digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def open_session(  # noqa: PLR0913
    *,
    kind: str,
    name: str,
    workflow: Workflow,
    acting_user: User,
    tools: Collection[str],
    parent: ToolSession | None = None,
    run_id: UUID | None = None,
    step_id: str = "",
    attempt_id: UUID | None = None,
    db_access: str = "none",
    now: datetime | None = None,
) -> Opened:
    """Register the session of an attempt or a client. Its parent, its allow list and its user are fixed from here on.

    Raises SessionRefused, and nothing was opened: an unknown tool, a parent that is no live authority of the same
    workflow and user, a user without the right to it, a second session for one attempt (`ambiguous`).
    """
    session_kind = Kind(kind)
    if session_kind == Kind.RUN:
        raise ValueError("The sessions of runs are opened by open_run_sessions.")
    _check_grants(tools, db_access)
    if (parent is None) is not (session_kind in AUTHORITIES):
        raise SessionRefused(
            f"A {kind} session {'needs a' if parent is None else 'has no'} parent. No session was opened.",
            code=Code.NOT_REGISTERED,
        )
    found = _found(workflow, acting_user, parent, attempt_id if session_kind == Kind.STEP else None)
    _check_parent(found, workflow, acting_user, parent)
    _check_rights(session_kind, acting_user, found.role, db_access)
    if found.has_twin:
        raise SessionRefused("This attempt has its session already. No second one was opened.", code=Code.AMBIGUOUS)
    token = TOKEN_MARK + secrets.token_urlsafe(32)
    session = ToolSession(
        kind=session_kind,
        name=name[:120],
        team_id=workflow.team_id,
        workflow=workflow,
        acting_user=acting_user,
        parent=parent,
        run_id=run_id,
        step_id=step_id,
        attempt_id=attempt_id,
        tools=_with_receipts(tools),
        db_access=db_access,
        token_sha256=token_digest(token),
        opened_at=now or timezone.now(),
    )
    rows.insert([session])
    return Opened(session, token)


def open_run_sessions(wanted: Iterable[RunSession], *, now: datetime | None = None) -> list[ToolSession]:
    """The sessions of runs that start together, without tokens: the checks of `open_session`, once for equal ones."""
    wanted = list(wanted)
    for tools, db_access in {(tuple(sorted(one.tools)), one.db_access) for one in wanted}:
        _check_grants(tools, db_access)
    equal = {(one.workflow.pk, one.acting_user.pk, one.db_access): one for one in wanted}
    for one in equal.values():
        _check_rights(Kind.RUN, one.acting_user, _found(one.workflow, one.acting_user, None, None).role, one.db_access)
    runs = ", ".join(["%s"] * len(wanted))
    twins = f"SELECT 1 FROM tools_toolsession WHERE kind = 'run' AND run_id IN ({runs}) LIMIT 1"  # noqa: S608
    if driver.one(twins, [one.run_id for one in wanted]):
        raise SessionRefused("A run has its session already. No session was opened.", code=Code.AMBIGUOUS)
    opened_at = now or timezone.now()
    sessions = [
        ToolSession(
            kind=Kind.RUN,
            name=one.name[:120],
            team_id=one.workflow.team_id,
            workflow=one.workflow,
            acting_user=one.acting_user,
            run_id=one.run_id,
            tools=_with_receipts(one.tools),
            db_access=one.db_access,
            opened_at=opened_at,
        )
        for one in wanted
    ]
    rows.insert(sessions)
    return sessions


def end_session(session_id: UUID, reason: str, *, now: datetime | None = None) -> bool:
    """End the session and its children. True when this call ended it, False when it had ended before or never was."""
    ended = _end("id = %s", [session_id], reason, now)
    if ended:
        _end("parent_id = %s", [session_id], "parent_ended", now)
    return bool(ended)


def end_sessions_of_run(run_id: UUID, reason: str, *, now: datetime | None = None) -> int:
    """End the run's session and all that work below it; returns how many this call ended."""
    return len(_end("run_id = %s", [run_id], reason, now))


def suspend_run_session(run_id: UUID) -> bool:
    """Refuse the run's calls until `resume_run_session`: it needs attention. True when it was live."""
    return bool(_move_run_session(run_id, State.LIVE, State.SUSPENDED))


def resume_run_session(run_id: UUID) -> bool:
    """True when the run's session was suspended and is live again."""
    return bool(_move_run_session(run_id, State.SUSPENDED, State.LIVE))


def _check_grants(tools: Collection[str], db_access: str) -> None:
    if db_access not in ACCESS:
        raise SessionRefused(f"db_access must be none, read or read-write, not {db_access!r}. No session was opened.")
    unknown = sorted(name for name in set(tools) if not catalogue.known(name))
    if unknown:
        raise SessionRefused(
            f"There is no tool named {', '.join(unknown)}. No session was opened."
            f" The tools are: {', '.join(catalogue.names())}.",
            code=Code.TOOL_NOT_FOUND,
        )


def _with_receipts(tools: Collection[str]) -> list[str]:
    """The right to mutate brings the right to read back what became of it."""
    granted = set(tools)
    if any(definition.mutates for definition in map(catalogue.find, granted) if definition):
        granted.add(catalogue.READ_RECEIPT)
    return sorted(granted)


@dataclass(frozen=True)
class _Found:
    """What opening a session depends on, as the database has it now."""

    role: Role | None
    has_twin: bool
    parent_state: str | None
    parent_kind: str | None
    parent_workflow: UUID | None
    parent_user: int | None


def _found(workflow: Workflow, user: User, parent: ToolSession | None, attempt_id: UUID | None) -> _Found:
    """One read for all of it: every attempt opens a session."""
    row = driver.one(_OPENING, [attempt_id, None if parent is None else parent.pk, workflow.team_id, user.pk])
    if row is None:
        return _Found(None, False, None, None, None, None)
    is_active, role, has_twin, state, parent_kind, parent_workflow, parent_user = row
    known = Role(role) if role and is_active else None
    return _Found(known, bool(has_twin), state, parent_kind, driver.as_optional_uuid(parent_workflow), parent_user)


_OPENING = """
    SELECT u.is_active, m.role,
           EXISTS (SELECT 1 FROM tools_toolsession t WHERE t.kind = 'step' AND t.attempt_id = %s),
           p.state, p.kind, p.workflow_id, p.acting_user_id
      FROM accounts_user u
      LEFT JOIN tools_toolsession p ON p.id = %s
      LEFT JOIN accounts_membership m ON m.user_id = u.id AND m.team_id = %s
     WHERE u.id = %s
"""


def _check_parent(found: _Found, workflow: Workflow, user: User, parent: ToolSession | None) -> None:
    if parent is None:
        return
    if found.parent_state != State.LIVE:
        raise SessionRefused("The parent session is not live. No session was opened.", code=Code.PARENT_ENDED)
    if (found.parent_workflow, found.parent_user) != (workflow.pk, user.pk) or found.parent_kind not in AUTHORITIES:
        raise SessionRefused(
            "The parent is not an authority of the same workflow and user. No session was opened.",
            code=Code.NOT_REGISTERED,
        )


def _check_rights(kind: Kind, user: User, role: Role | None, db_access: str) -> None:
    needed = required_permission(kind, db_access)
    if not access.allowed(role, needed):
        raise SessionRefused(
            f"{user.get_username()} may not act for this workflow: that needs the role {access.NEEDS[needed].value}."
            " No session was opened.",
            status=403,
            code=Code.PERMISSIONS_CHANGED,
        )


def _end(where: str, subject: Sequence[UUID], reason: str, now: datetime | None) -> list[UUID]:
    """End what `where` finds and is not ended; each is settled and sealed once the caller has committed."""
    values = [now or timezone.now(), reason[:64], *subject]
    ended = [driver.as_uuid(key) for (key,) in driver.every(_ENDING.format(where=where), values)]
    for session_id in ended:
        _finish_when_committed(session_id)
    return ended


def _finish_when_committed(session_id: UUID) -> None:
    """What fails there is tried again by `closing.finish_ended`."""

    def finish() -> None:  # a function with a name: Django asks for it when it has failed, and a partial has none
        closing.finish(session_id)

    transaction.on_commit(finish, robust=True)


_ENDING = (
    "UPDATE tools_toolsession SET state = 'ended', ended_at = %s, end_reason = %s"
    " WHERE state <> 'ended' AND ({where}) RETURNING id"
)


def _move_run_session(run_id: UUID, source: State, target: State) -> int:
    return ToolSession.objects.filter(run_id=run_id, kind=Kind.RUN, state=source).update(state=target)
