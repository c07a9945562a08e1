"""Tool calls that were imported into the ledger are told to their run's page: one event a batch, however large."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from apps.runs import events
from apps.runs.errors import LeaseLost
from apps.runs.kinds import Kind
from apps.tools.journal import Row


def tell_run(_session_id: uuid.UUID, rows: Sequence[Row]) -> None:
    """In the transaction that stores the rows: how many, of which tools, and how far the session's calls go now."""
    last = rows[-1]
    if not last.entry.run_id:  # a chat or an API client: no run looks on
        return
    ids = {name: getattr(last.entry, name) for name in ("session_id", "attempt_id", "step_id")}
    data = {"calls": len(rows), "last": last.seq, "tools": sorted({row.entry.tool for row in rows})}
    try:
        events.record(uuid.UUID(last.entry.run_id), Kind.TOOL_CALLED, ids, data)
    except LeaseLost:  # the run is gone from the table: nobody is left to be told
        return
