"""A refused tool call is told to the runs on both sides of it (BEHAVIOUR 6.5)."""

from __future__ import annotations

import uuid

from apps.runs import events
from apps.runs.errors import LeaseLost
from apps.runs.kinds import Kind
from apps.tools.models import OwnershipDiagnostic


def tell_runs(diagnostic: OwnershipDiagnostic) -> None:
    """In the transaction that stores the diagnostic: one event for each run that it names."""
    data = {
        "tool": diagnostic.tool,
        "reason": diagnostic.reason,
        "caller": diagnostic.caller,
        "tool_session": diagnostic.tool_session,
        "authority": diagnostic.authority,
        "caller_run_id": _text(diagnostic.caller_run_id),
        "owner_run_id": _text(diagnostic.owner_run_id),
    }
    for run_id in sorted({one for one in (diagnostic.caller_run_id, diagnostic.owner_run_id) if one}):
        try:
            events.record(run_id, Kind.TOOL_REJECTED, {"diagnostic_id": str(diagnostic.pk)}, data)
        except LeaseLost:  # the run is gone from the table: nobody is left to be told
            continue


def _text(value: uuid.UUID | None) -> str | None:
    return str(value) if value else None
