"""What is done once a session has ended: settle what is open, import its journal, seal its chain."""

from __future__ import annotations

import logging
from uuid import UUID

from apps.tools import ledger, receipts
from apps.tools.errors import ToolFailure
from apps.tools.models import ToolSession

logger = logging.getLogger(__name__)


def finish(session_id: UUID) -> bool:
    """Settle, import and seal. Safe to repeat, from any process; True when the chain is sealed afterwards.

    False when the session is not ended, or a mutation stays unknown.
    """
    chain = ledger.chain_of(session_id)
    if chain is None or not chain.is_ended:
        return False
    if not chain.is_sealed and not _seal(chain, session_id):
        return False
    ToolSession.objects.filter(pk=session_id).update(sealed=True)
    return True


def _seal(chain: ledger.Chain, session_id: UUID) -> bool:
    opened = chain.open()
    try:
        with opened.exclusive():
            if (chain.open_intents or opened.last_seq() != chain.last_seq) and receipts.settle_chain(chain, opened):
                return False
            ledger.store_seal(session_id, opened.seal())
    finally:
        opened.close()
    return True


def finish_ended() -> int:
    """Finish every ended session that has no seal yet, as after a crash between the end and its sealing.

    A workflow whose database or journal cannot be had now is left for the next time: no other one waits for it.
    """
    finished, later = 0, set[UUID]()
    for key, workflow_id in ToolSession.objects.unsealed().values_list("pk", "workflow_id"):
        if workflow_id in later:
            continue
        try:
            finished += finish(key)
        except (ToolFailure, OSError) as wrong:
            logger.warning("The ledger of session %s cannot be sealed yet: %s", key, wrong)
            later.add(workflow_id)
    return finished
