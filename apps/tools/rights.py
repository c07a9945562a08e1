"""Which sessions act with an identity of their own, and what the user that one acts for must be allowed."""

from __future__ import annotations

from apps.accounts.access import Permission
from apps.tools.models import ToolSession

Kind = ToolSession.Kind
AUTHORITIES = frozenset({Kind.RUN, Kind.CHAT, Kind.CREW, Kind.MCP, Kind.API})


def required_permission(kind: str, db_access: str) -> Permission:
    """What the acting user must be allowed, when a session is opened and at each of its calls.

    Runs act with their owner's rights; a client's session that may write needs what editing needs.
    """
    if kind in (Kind.CHAT, Kind.CREW, Kind.MCP, Kind.API) and db_access != "read-write":
        return Permission.RUN
    return Permission.EDIT
