"""Refusals of the tools app, and the codes of BEHAVIOUR 6 and SANDBOX B.10."""

from __future__ import annotations

import enum

from apps.accounts.errors import Refused


class Code(enum.StrEnum):
    """Why a call was refused or failed. Public words: scripts and pages rely on them."""

    # Of ownership: each is a diagnostic.
    SESSION_UNKNOWN = "session_unknown"
    SESSION_ENDED = "session_ended"
    NOT_OWNER = "not_owner"
    PARENT_ENDED = "parent_ended"
    NOT_REGISTERED = "not_registered"
    AMBIGUOUS = "ambiguous"
    PERMISSIONS_CHANGED = "permissions_changed"
    # Of the boundary, but no matter of ownership.
    TOOL_NOT_FOUND = "tool_not_found"
    TOOL_NOT_GRANTED = "tool_not_granted"
    # Of the endpoint.
    TOOL_RATE = "tool_rate"
    MESSAGE_TOO_LARGE = "message_too_large"
    CALL_CONFLICT = "call_conflict"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    MALFORMED = "malformed"
    # Of a call that was admitted.
    ARGUMENTS_REJECTED = "arguments_rejected"
    SQL_ERROR = "sql_error"
    LIMIT_EXCEEDED = "limit_exceeded"
    RESULT_TOO_LARGE = "result_too_large"
    LEASE_LOST = "lease_lost"
    DATABASE_ALTERED = "database_altered"
    UNKNOWN = "unknown"
    NOT_FOUND = "not_found"


OWNERSHIP = frozenset(
    {
        Code.SESSION_UNKNOWN,
        Code.SESSION_ENDED,
        Code.NOT_OWNER,
        Code.PARENT_ENDED,
        Code.NOT_REGISTERED,
        Code.AMBIGUOUS,
        Code.PERMISSIONS_CHANGED,
    }
)
BOUNDARY = OWNERSHIP | {Code.TOOL_NOT_FOUND, Code.TOOL_NOT_GRANTED}


class SessionRefused(Refused):
    """A session that would not be what it says. No session was opened."""

    status = 409
    code = "session_refused"


class ToolFailure(Exception):
    """An admitted call that did not do what it was asked. For a mutation: provably without effect."""

    def __init__(self, code: Code, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class JournalClosed(Exception):
    """The journal was sealed: its session has ended, no row follows."""


class MigrationRefused(Refused):
    """A database migration that was not applied. The database is as it was."""

    status = 400
    code = "migration_refused"
