"""The ledger: journals imported in batches, sealed, verified, exported (BEHAVIOUR 6.6)."""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from apps.tools import catalogue, driver, journal
from apps.tools.errors import Code
from apps.tools.journal import Entry, Journal, Row
from apps.tools.models import LedgerSeal, Receipt, ToolCall, ToolSession
from apps.workflows.places import data_places
from engine import keyfiles

BATCH = 200
SETTLED_OUTCOMES = frozenset({Receipt.State.APPLIED, Receipt.State.REFUSED, Receipt.State.NOT_SENT})
KEY_FILE = "ledger.key"
logger = logging.getLogger(__name__)

on_imported: list[Callable[[UUID, Sequence[Row]], None]] = []
"""Called with the session's id and the rows, inside the transaction that stores them."""


@dataclass(frozen=True)
class Verdict:
    """What a check of one session's chain found. `sealed` says that nothing can be missing at its end."""

    session_id: UUID
    rows: int
    sealed: bool
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True)
class Chain:
    """What of a session's row its journal and its seal depend on."""

    session_id: UUID
    team_id: UUID
    workflow_id: UUID
    run_id: UUID | None
    attempt_id: UUID | None
    is_ended: bool
    is_sealed: bool
    open_intents: int
    last_seq: int

    @property
    def path(self) -> Path:
        workflow = data_places().workflow(str(self.team_id), str(self.workflow_id))
        return workflow.root / "journals" / f"{self.session_id}.jsonl"

    def open(self) -> Journal:
        """The session's journal, for appending. Close it."""
        return Journal(self.path, key_of(self.attempt_id or self.session_id))


def chain_of(session_id: UUID) -> Chain | None:
    """One read for all of it: every attempt begins and ends a chain."""
    row = driver.one(_CHAIN, [session_id])
    if row is None:
        return None
    team, workflow, run, attempt, state, sealed, intents, last = row
    return Chain(
        session_id,
        driver.as_uuid(team),
        driver.as_uuid(workflow),
        driver.as_optional_uuid(run),
        driver.as_optional_uuid(attempt),
        state == ToolSession.State.ENDED,
        sealed is not None,
        intents,
        last or 0,
    )


_CHAIN = """
    SELECT w.team_id, s.workflow_id, s.run_id, s.attempt_id, s.state, l.session_id,
           (SELECT count(*) FROM tools_receipt r WHERE r.session_id = s.id AND r.state IN ('intent', 'unknown')),
           (SELECT max(c.seq) FROM tools_toolcall c WHERE c.session_id = s.id)
      FROM tools_toolsession s
      JOIN workflows_workflow w ON w.id = s.workflow_id
      LEFT JOIN tools_ledgerseal l ON l.session_id = s.id
     WHERE s.id = %s
"""


def key_of(subject: UUID) -> bytes:
    """The key of one attempt's chain, or of one session's: derived from a key file outside the database."""
    return hmac.digest(_master(str(settings.PULSE_DATA)), f"ledger:{subject}".encode(), hashlib.sha256)


class Import:
    """Moves rows of one journal into the ledger. Remembers how far it came; a new one finds out by itself."""

    def __init__(self, session_id: UUID, opened: Journal) -> None:
        self._session_id = session_id
        self._journal = opened
        self._offset = 0
        self._lock = threading.Lock()

    def run(self) -> int:
        """Import what is new, in batches of one short transaction each; returns how many rows."""
        with self._lock:
            return self._run()

    def try_to_run(self) -> None:
        """An import that fails is tried again, at the latest before the seal: the rows are safe in the journal."""
        try:
            self.run()
        except Exception:
            logger.exception("Rows of a journal could not be imported; they will be tried again")
            connection.close_if_unusable_or_obsolete()

    def _run(self) -> int:
        if self._offset == 0 and _last_seq(self._session_id) == self._journal.last_seq():
            self._offset = self._journal.size()
            return 0
        imported = 0
        batch: list[Row] = []
        end = self._offset
        for row, offset in self._journal.rows(self._offset):
            batch.append(row)
            end = offset
            if len(batch) == BATCH:
                imported += _store(self._session_id, batch)
                self._offset, batch = end, []
        if batch:
            imported += _store(self._session_id, batch)
            self._offset = end
        return imported


def import_row(session_id: UUID, opened: Journal, row: Row) -> None:
    """Import one row that was just appended, and those before it that nobody has imported yet."""
    if _last_seq(session_id) == row.seq - 1:
        _store(session_id, [row])
    else:
        Import(session_id, opened).run()


def store_seal(session_id: UUID, seal: journal.Seal) -> None:
    driver.changed(_SEALING, [session_id, seal.rows, seal.last_hmac, seal.hmac, timezone.now()])


_SEALING = (
    "INSERT INTO tools_ledgerseal (session_id, rows, last_hmac, hmac, sealed_at)"
    " VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)


def verify(session_id: UUID) -> Verdict:
    """Recompute the chain of a session out of the ledger: a row changed, added or missing is a problem.

    So is a change that was applied, by its receipt, and is in no row of a sealed chain.
    """
    session = ToolSession.objects.get(pk=session_id)
    key = key_of(session.attempt_id or session.pk)
    problems: list[str] = []
    previous, count = "", 0
    for call in ToolCall.objects.filter(session_id=session_id).order_by("seq").iterator():
        count += 1
        problems.extend(_faults(call, key, count, previous))
        previous = call.hmac
    seal = LedgerSeal.objects.filter(session_id=session_id).first()
    if seal is not None:
        problems.extend(_seal_faults(seal, key, count, previous))
        problems.extend(f"the applied change {call_id} has no row" for call_id in _without_row(session_id))
    elif session.state == ToolSession.State.ENDED:
        problems.append("the session has ended, but its chain has no seal")
    return Verdict(session_id, count, seal is not None, tuple(problems))


def export(session_id: UUID) -> Iterator[dict[str, Any]]:
    """The rows of a session in their order, as they are chained, then its seal."""
    for call in ToolCall.objects.filter(session_id=session_id).order_by("seq").iterator():
        entry = entry_of(call)
        yield {"seq": call.seq, "previous_hmac": call.previous_hmac, **entry._asdict(), "hmac": call.hmac}
    seal = LedgerSeal.objects.filter(session_id=session_id).first()
    if seal is not None:
        yield {"seal": str(session_id), "rows": seal.rows, "last_hmac": seal.last_hmac, "hmac": seal.hmac}


def _store(session_id: UUID, rows: list[Row]) -> int:
    """One batch, as plain tuples: a model object a row would keep the calls themselves waiting for Python."""
    with transaction.atomic():
        last = (
            ToolCall.objects.filter(session_id=session_id).order_by("-seq").values_list("seq", flat=True).first() or 0
        )
        new = [row for row in rows if row.seq > last]
        if not new:
            return 0
        with connection.cursor() as cursor:
            cursor.executemany(_INSERT, [_stored(row) for row in new])
        _settle_answered(new)
        for announce in on_imported:
            announce(session_id, new)
    return len(new)


def _settle_answered(rows: Sequence[Row]) -> None:
    """Receipts of calls that were answered or read back, as their rows say. Inside the import's transaction.

    A refusal for the id alone says nothing of the call that had it first.
    """
    by_state: dict[tuple[UUID, str], list[UUID]] = defaultdict(list)
    for entry in (row.entry for row in rows):
        tool = catalogue.find(entry.tool)
        if entry.verdict != "allowed" or entry.error_code == Code.CALL_CONFLICT or (tool and not tool.mutates):
            continue
        if entry.outcome in SETTLED_OUTCOMES:
            by_state[UUID(entry.session_id), entry.outcome].append(UUID(entry.call_id))
    for (session_id, state), ids in by_state.items():
        unsettled = Receipt.objects.filter(
            pk__in=ids, session_id=session_id, state__in=[Receipt.State.INTENT, Receipt.State.UNKNOWN]
        )
        unsettled.update(state=state, settled_at=timezone.now())


def _last_seq(session_id: UUID) -> int:
    row = driver.one("SELECT max(seq) FROM tools_toolcall WHERE session_id = %s", [session_id])
    return (row and row[0]) or 0


def _stored(row: Row) -> tuple[Any, ...]:
    entry = row.entry
    started_at = connection.ops.adapt_datetimefield_value(journal.moment(entry.started_us))
    return (
        _spelled(entry.call_id),
        _spelled(entry.session_id),
        _spelled(entry.authority_id),
        _spelled(entry.workflow_id),
        _spelled(entry.run_id),
        entry.step_id,
        _spelled(entry.attempt_id),
        row.seq,
        entry.tool,
        entry.argument_digest,
        entry.verdict,
        entry.outcome,
        entry.error_code,
        started_at,
        entry.duration_us,
        row.previous_hmac,
        row.hmac,
    )


def _spelled(uuid_text: str) -> str | None:
    """A UUID as the database keeps it: SQLite without its dashes."""
    if not uuid_text:
        return None
    return uuid_text if connection.features.has_native_uuid_field else uuid_text.replace("-", "")


_COLUMNS = (
    *("call_id", "session_id", "authority_id", "workflow_id", "run_id", "step_id", "attempt_id", "seq", "tool"),
    *("argument_digest", "verdict", "outcome", "error_code", "started_at", "duration_us", "previous_hmac", "hmac"),
)
_INSERT = (
    f"INSERT INTO tools_toolcall ({', '.join(_COLUMNS)})"  # noqa: S608 - constants only
    f" VALUES ({', '.join(['%s'] * len(_COLUMNS))}) ON CONFLICT DO NOTHING"
)


def entry_of(call: ToolCall) -> Entry:
    """What a row of the ledger says, as it was chained."""
    return Entry(
        call_id=str(call.call_id),
        session_id=str(call.session_id),
        authority_id=str(call.authority_id),
        workflow_id=str(call.workflow_id),
        run_id=journal.text(call.run_id),
        step_id=call.step_id,
        attempt_id=journal.text(call.attempt_id),
        tool=call.tool,
        argument_digest=call.argument_digest,
        verdict=call.verdict,
        outcome=call.outcome,
        error_code=call.error_code,
        started_us=journal.microseconds(call.started_at),
        duration_us=call.duration_us,
    )


def _faults(call: ToolCall, key: bytes, place: int, previous: str) -> Iterator[str]:
    if call.seq != place:
        yield f"row {place} is missing: the next one is {call.seq}"
    if call.previous_hmac != previous:
        yield f"row {call.seq} does not follow the row before it"
    expected = journal.row_hmac(key, call.seq, call.previous_hmac, entry_of(call))
    if not hmac.compare_digest(expected, call.hmac):
        yield f"row {call.seq} was changed or was not written by the platform"


def _seal_faults(seal: LedgerSeal, key: bytes, count: int, last: str) -> Iterator[str]:
    if not hmac.compare_digest(journal.seal_hmac(key, seal.rows, seal.last_hmac), seal.hmac):
        yield "the seal was changed"
    if seal.rows != count:
        yield f"the seal counts {seal.rows} rows, the ledger has {count}"
    if seal.last_hmac != last:
        yield "the last row is not the one that was sealed"


def _without_row(session_id: UUID) -> Iterator[UUID]:
    there = ToolCall.objects.filter(session_id=session_id, outcome=Receipt.State.APPLIED)
    applied = Receipt.objects.filter(session_id=session_id, state=Receipt.State.APPLIED)
    return applied.exclude(pk__in=there.values("call_id")).order_by("pk").values_list("pk", flat=True).iterator()


@lru_cache(maxsize=4)
def _master(data: str) -> bytes:
    return keyfiles.read_or_make(Path(data) / "secrets" / KEY_FILE).encode()
