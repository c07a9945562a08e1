"""What is known of mutations: an intent before, the effect's own receipt, settled by reading (BEHAVIOUR 6.8)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from apps.tools import driver, journal, ledger
from apps.tools.errors import Code, ToolFailure
from apps.tools.identity import SessionFacts
from apps.tools.journal import Entry, Journal
from apps.tools.ledger import Chain
from apps.tools.models import Receipt, ToolSession
from apps.tools.work import Databases, Work
from apps.tools.workflow_db import writing
from apps.tools.workflow_db.writing import Mark

State = Receipt.State


def intend(work: Work) -> bool:
    """Write the intent, before anything is sent. False when the session has ended meanwhile or the id is taken.

    One statement: once a session's end is committed no new intent of it can appear, so what settles it sees them all.
    """
    values = [
        work.call_id,
        work.caller.id,
        work.authority.workflow_id,
        work.caller.run_id,
        work.caller.step_id,
        work.caller.attempt_id,
        work.tool,
        work.argument_digest,
        timezone.now(),
        work.caller.id,
    ]
    return driver.changed(_INTEND[connection.vendor], values) == 1


def find_receipt(call_id: UUID) -> Receipt | None:
    return Receipt.objects.filter(pk=call_id).first()


def open_intents(attempt_id: UUID | None = None, session_id: UUID | None = None) -> QuerySet[Receipt]:
    """Mutations of which it is not known yet what became of them."""
    rows = Receipt.objects.filter(state__in=[State.INTENT, State.UNKNOWN])
    if attempt_id is not None:
        rows = rows.filter(attempt_id=attempt_id)
    return rows if session_id is None else rows.filter(session_id=session_id)


def settle(attempt_id: UUID) -> list[Receipt]:
    """Read back what became of every open mutation of an attempt; returns those that stay unknown (none, for the
    workflow's database: a mutation that has no receipt there is made void, and can never apply after this)."""
    for session_id in ToolSession.objects.filter(attempt_id=attempt_id).values_list("pk", flat=True):
        chain = ledger.chain_of(session_id)
        if chain is None:
            continue
        opened = chain.open()
        try:
            with opened.exclusive():
                settle_chain(chain, opened)
        finally:
            opened.close()
    return list(open_intents(attempt_id))


def settle_chain(chain: Chain, opened: Journal) -> bool:
    """The same for one session, under its journal's lock: import, read back, add the rows nobody lived to write.

    True when something stays unknown.
    """
    importing = ledger.Import(chain.session_id, opened)
    importing.run()
    intents = list(open_intents(session_id=chain.session_id).select_related("session"))
    if not intents:
        return False
    databases = Databases()
    try:
        for receipt in intents:
            try:
                kept = writing.settle(databases.of(chain.team_id, chain.workflow_id), _mark(receipt))
            except ToolFailure as failed:
                if failed.code != Code.DATABASE_ALTERED:
                    raise
                Receipt.objects.filter(pk=receipt.pk).update(state=State.UNKNOWN)
                continue
            state = State.APPLIED if kept.applied else State.NOT_SENT
            # The row first: what ends between the two leaves an intent that the next import settles by its row. The
            # other way round nobody would look again, and the chain would be sealed without it.
            if not chain.is_sealed:
                opened.append_settled(_entry_of(receipt, receipt.session, state))
            Receipt.objects.filter(pk=receipt.pk).update(state=state, result=kept.result, settled_at=timezone.now())
    finally:
        databases.close()
    importing.run()
    return open_intents(session_id=chain.session_id).exists()


def _mark(receipt: Receipt) -> Mark:
    return Mark(receipt.pk, receipt.session_id, receipt.argument_digest, receipt.run_id, None)


def read(work: Work, call_id: UUID) -> dict[str, Any] | None:
    """What became of a mutation of the caller's own authority, settled by reading; None when it is another's.

    An id that never arrived becomes `not_sent` for good: if it still comes, it is refused.
    """
    receipt = find_receipt(call_id) or _never_sent(work, call_id)
    if receipt is None or not _belongs(receipt, work.caller):
        return None
    if receipt.state in ledger.SETTLED_OUTCOMES and receipt.state != State.APPLIED:
        return _shown(receipt, receipt.state, receipt.result)
    kept = writing.settle(work.database, _mark(receipt))
    if receipt.state == State.APPLIED and not kept.applied:  # it was answered as applied; its receipt is gone since
        return _shown(receipt, State.APPLIED, receipt.result)
    state = State.APPLIED if kept.applied else State.NOT_SENT
    return _shown(receipt, state, kept.result)


def _never_sent(work: Work, call_id: UUID) -> Receipt | None:
    now = timezone.now()
    receipt, _ = Receipt.objects.get_or_create(
        pk=call_id,
        defaults={
            "session_id": work.caller.id,
            "workflow_id": work.authority.workflow_id,
            "run_id": work.caller.run_id,
            "step_id": work.caller.step_id,
            "attempt_id": work.caller.attempt_id,
            "tool": "",
            "argument_digest": "",
            "state": State.NOT_SENT,
            "made_at": now,
            "settled_at": now,
        },
    )
    return receipt


def _belongs(receipt: Receipt, caller: SessionFacts) -> bool:
    """A run's receipts are read by all attempts of that run; a client's only by its own session."""
    if caller.run_id is not None:
        return receipt.run_id == caller.run_id and receipt.workflow_id == caller.workflow_id
    return receipt.session_id == caller.id


def _shown(receipt: Receipt, outcome: str, result: Any) -> dict[str, Any]:
    return {
        "call_id": str(receipt.pk),
        "tool": receipt.tool,
        "outcome": str(outcome),
        "result": result,
        "step_id": receipt.step_id,
        "made_at": receipt.made_at.isoformat(),
    }


def _entry_of(receipt: Receipt, session: ToolSession, state: str) -> Entry:
    return Entry(
        call_id=str(receipt.pk),
        session_id=str(session.pk),
        authority_id=str(session.parent_id or session.pk),
        workflow_id=str(session.workflow_id),
        run_id=journal.text(session.run_id),
        step_id=session.step_id,
        attempt_id=journal.text(session.attempt_id),
        tool=receipt.tool,
        argument_digest=receipt.argument_digest,
        verdict="allowed",
        outcome=str(state),
        error_code="" if state == State.APPLIED else "unanswered",
        started_us=journal.microseconds(receipt.made_at),
        duration_us=0,
    )


_COLUMNS = "id, session_id, workflow_id, run_id, step_id, attempt_id, tool, argument_digest, made_at"
_INTEND_TEXT = (
    f"INSERT INTO tools_receipt ({_COLUMNS}, state)"  # noqa: S608 - constants only
    " SELECT %s, %s, %s, %s, %s, %s, %s, %s, %s, 'intent' FROM tools_toolsession WHERE id = %s AND state = 'live'"
)
_INTEND = {
    "sqlite": _INTEND_TEXT + " ON CONFLICT DO NOTHING",
    "postgresql": _INTEND_TEXT + " FOR SHARE ON CONFLICT DO NOTHING",
}
