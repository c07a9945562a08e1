"""Who calls, and with whose identity: one indexed read, then the checks of BEHAVIOUR 6.3 in their order.

Nothing of identity is cached: the session, its parent, and the acting user's membership are read as they are now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from apps.accounts import access
from apps.accounts.roles import Role
from apps.tools import catalogue, driver
from apps.tools.catalogue import Tool
from apps.tools.errors import Code
from apps.tools.models import ToolSession
from apps.tools.rights import AUTHORITIES, required_permission

LIVE = ToolSession.State.LIVE


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What a session's row says, as it was read for this call."""

    id: UUID
    kind: str
    name: str
    state: str
    workflow_id: UUID
    acting_user_id: int
    parent_id: UUID | None
    run_id: UUID | None
    step_id: str
    attempt_id: UUID | None
    texts: tuple[str, str, str, str, str]
    """Session, workflow, run, step, attempt, as the ledger spells them."""

    def __str__(self) -> str:
        """For people; at most 160 characters. The id comes first since names prove nothing."""
        run = f" run={self.run_id}" if self.run_id else ""
        return f"{self.kind}:{self.id}{run} {self.name}"[:160]


@dataclass(frozen=True, slots=True)
class Caller:
    """The session of a token with all that decides about its calls."""

    session: SessionFacts
    parent: SessionFacts | None
    team_id: UUID
    tools: frozenset[str]
    """What the session can really call."""
    db_access: str
    user_is_active: bool
    role: str | None


@dataclass(frozen=True, slots=True)
class Grant:
    """An admitted call: the caller, the identity it acts with, and the tool."""

    caller: Caller
    authority: SessionFacts
    tool: Tool


class Rejected(Exception):
    """The call was refused before anything was looked at but identity."""

    def __init__(self, code: Code, caller: Caller | None = None, authority: SessionFacts | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.caller = caller
        self.authority = authority


def read_caller(token_sha256: str) -> Caller | None:
    """The one read of a call. None when no session ever had this token."""
    row = driver.one(_BY_TOKEN, [token_sha256])
    return None if row is None else _caller(row)


def admit(caller: Caller | None, tool: str, named: Iterable[str], listener: UUID | None) -> Grant:
    """The grant of a call, or Rejected with its code. `named` are session ids that the call itself mentions."""
    if caller is None:
        raise Rejected(Code.SESSION_UNKNOWN)
    if caller.session.state != LIVE:
        raise Rejected(Code.SESSION_ENDED, caller)
    definition = catalogue.find(tool)
    if definition is None:
        raise Rejected(Code.TOOL_NOT_FOUND, caller)
    if tool not in caller.tools:
        raise Rejected(Code.TOOL_NOT_GRANTED, caller)
    _check_named(caller, named, listener)
    authority = _authority(caller)
    _check_access(caller, authority)
    return Grant(caller, authority, definition)


def _check_named(caller: Caller, named: Iterable[str], listener: UUID | None) -> None:
    if listener is not None and listener != caller.session.id:
        raise Rejected(Code.NOT_OWNER, caller)
    own = {str(caller.session.id), str(caller.session.parent_id)}
    for name in named:
        if name not in own:
            raise Rejected(Code.AMBIGUOUS if _fits_several(name) else Code.NOT_OWNER, caller)


def _authority(caller: Caller) -> SessionFacts:
    session, parent = caller.session, caller.parent
    if session.kind in AUTHORITIES and session.parent_id is None:
        return session
    if parent is None or not _is_parent_of(parent, session):
        raise Rejected(Code.NOT_REGISTERED, caller)
    if parent.state != LIVE:
        raise Rejected(Code.PARENT_ENDED, caller, parent)
    return parent


def _is_parent_of(parent: SessionFacts, child: SessionFacts) -> bool:
    """The row says so, and nothing in it contradicts: one workflow, one user, one run."""
    return (
        parent.kind in AUTHORITIES
        and child.kind not in AUTHORITIES
        and parent.workflow_id == child.workflow_id
        and parent.acting_user_id == child.acting_user_id
        and (parent.run_id is None or parent.run_id == child.run_id)
    )


def _check_access(caller: Caller, authority: SessionFacts) -> None:
    needed = required_permission(authority.kind, caller.db_access)
    role = Role(caller.role) if caller.role and caller.user_is_active else None
    if not access.allowed(role, needed):
        raise Rejected(Code.PERMISSIONS_CHANGED, caller, authority)


def _fits_several(name: str) -> bool:
    """True when the text fits two live sessions, by name or by the beginning of an id: then it names neither."""
    if not name.isprintable():  # no session is called so, and no database can be asked
        return False
    live = ToolSession.objects.live()
    fits = set(live.filter(name=name).values_list("pk", flat=True)[:2])
    beginning = name.lower()
    if len(fits) < 2 and 4 <= len(beginning.replace("-", "")) < 32 and set(beginning) <= set("0123456789abcdef-"):
        fits |= {key for key in live.values_list("pk", flat=True).iterator() if str(key).startswith(beginning)}
    return len(fits) > 1


def find(session_id: UUID) -> SessionFacts | None:
    """A session's facts by its id: for diagnostics and for rows that are written on its behalf."""
    row = ToolSession.objects.filter(pk=session_id).values_list(*_FACTS).first()
    return None if row is None else _facts(row)


_FACTS = (
    "id",
    "kind",
    "name",
    "state",
    "workflow_id",
    "acting_user_id",
    "parent_id",
    "run_id",
    "step_id",
    "attempt_id",
)
_WIDTH = len(_FACTS)
_BY_TOKEN = f"""
    SELECT {", ".join(f"s.{name}" for name in _FACTS)}, {", ".join(f"p.{name}" for name in _FACTS)},
           w.team_id, CAST(s.tools AS TEXT), s.db_access, u.is_active, m.role
      FROM tools_toolsession s
      JOIN workflows_workflow w ON w.id = s.workflow_id
      JOIN accounts_user u ON u.id = s.acting_user_id
      LEFT JOIN tools_toolsession p ON p.id = s.parent_id
      LEFT JOIN accounts_membership m ON m.team_id = w.team_id AND m.user_id = s.acting_user_id
     WHERE s.token_sha256 = %s
"""  # noqa: S608 - made of the constants above


@lru_cache(maxsize=4096)
def _caller(row: tuple[Any, ...]) -> Caller:
    """What a row says. The same row says the same: only the reading of it is kept, never the row."""
    session, parent, rest = row[:_WIDTH], row[_WIDTH : 2 * _WIDTH], row[2 * _WIDTH :]
    team_id, tools, db_access, user_is_active, role = rest
    return Caller(
        _facts(session),
        None if parent[0] is None else _facts(parent),
        driver.as_uuid(team_id),
        catalogue.callable_with(frozenset(json.loads(tools)), db_access),
        db_access,
        bool(user_is_active),
        role,
    )


def _facts(row: Any) -> SessionFacts:
    key, kind, name, state, workflow, user, parent, run, step, attempt = row
    ids = [None if each is None else driver.as_uuid(each) for each in (key, workflow, parent, run, attempt)]
    session_id, workflow_id, parent_id, run_id, attempt_id = ids
    assert session_id is not None  # noqa: S101 - primary key
    assert workflow_id is not None  # noqa: S101 - not null
    texts = (str(session_id), str(workflow_id), str(run_id or ""), step, str(attempt_id or ""))
    return SessionFacts(session_id, kind, name, state, workflow_id, user, parent_id, run_id, step, attempt_id, texts)
