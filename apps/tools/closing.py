"""What is done once a session has ended: settle what is open, import its journal, seal its chain."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from apps.tools import ledger, receipts
from apps.tools.models import ToolSession


def finish(session_id: UUID) -> bool:
    """Settle, import and seal. Safe to repeat, from any process; True when the chain is sealed afterwards.

    False when the session is not ended, or a mutation stays unknown.
    """
    session = ToolSession.objects.select_related("workflow").filter(pk=session_id).first()
    if session is None or session.state != ToolSession.State.ENDED:
        return False
    opened = ledger.open_journal(session)
    try:
        with opened.exclusive():
            receipts.settle_session(session, opened)
            if receipts.open_intents(session_id=session_id).exists():
                return False
            ledger.store_seal(session, opened.seal())
    finally:
        opened.close()
    return True


def finish_ended() -> int:
    """Finish every ended session that has no seal yet, as after a crash between the end and its sealing."""
    return sum(finish(key) for key in ToolSession.objects.unsealed().values_list("pk", flat=True))


def drop_journals(ended_before: datetime) -> int:
    """Delete the journals of sessions that were sealed long ago: the ledger has their rows. Returns how many."""
    dropped = 0
    for session in ToolSession.objects.select_related("workflow").filter(ended_at__lt=ended_before, seal__isnull=False):
        path = ledger.journal_path(session)
        if path.exists():
            path.unlink()
            dropped += 1
    return dropped
