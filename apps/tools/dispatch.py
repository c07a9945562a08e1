"""The one dispatcher: every road to a tool ends here, and every call ends as a row of the ledger (BEHAVIOUR 6)."""

from __future__ import annotations

import logging
import time
from uuid import UUID

from django.db import Error as DatabaseError
from django.db import connection

from apps.tools import catalogue, diagnostics, identity, receipts, wire
from apps.tools.desk import Answer, Desk
from apps.tools.diagnostics import Sides
from apps.tools.envelope import Call, Envelope, failure
from apps.tools.errors import OWNERSHIP, Code, JournalClosed, ToolFailure
from apps.tools.identity import Caller, Grant, Rejected, SessionFacts
from apps.tools.journal import Entry
from apps.tools.models import Receipt
from apps.tools.work import Work
from apps.tools.workflow_db import writing

ALLOWED = "allowed"
State = Receipt.State
logger = logging.getLogger(__name__)


def call(given: Call, desk: Desk) -> Envelope:
    """Serve one call: admit it, do it, write its row, and only then answer. Never raises for what a caller did.

    Once a mutation of that id may have happened, what fails is answered `unknown`.
    """
    service = _Service(given, desk)
    try:
        return service.serve()
    except Exception as fault:
        if not service.may_have_happened and not isinstance(fault, DatabaseError):
            raise
        logger.exception("The platform failed during a call of %s", service.tool)
        connection.close()
        if service.may_have_happened:
            return failure(Code.UNKNOWN, "The platform failed during the call.", _READ_RECEIPT)
        return failure(Code.UNAVAILABLE, "The platform's database did not answer.", _READ_RECEIPT)


class _Service:
    """One call on its way. Made for it, gone with it."""

    def __init__(self, given: Call, desk: Desk) -> None:
        self.given = given
        self.desk = desk
        self.tool = _shown(given.tool)
        self.started_us = time.time_ns() // 1000
        self.clock = time.perf_counter_ns()
        self.digest = ""
        self.verdict = ALLOWED
        self.outcome = str(State.REFUSED)
        self.error_code = ""
        self.may_have_happened = False

    def serve(self) -> Envelope:
        given = self.given
        try:
            self.digest = wire.argument_digest(given.tool, given.arguments)
        except wire.Malformed as error:
            return failure(Code.MALFORMED, f"{error} Nothing was done.")
        over = self.desk.count_call()
        caller = identity.read_caller(given.token_sha256)
        try:
            if over:
                raise Rejected(Code.TOOL_RATE, caller)
            grant = identity.admit(caller, given.tool, given.named, self.desk.listener)
            return self._admitted(grant)
        except Rejected as rejected:
            return self._reject(rejected, with_row=over <= 1)

    def _admitted(self, grant: Grant) -> Envelope:
        session = grant.caller.session
        earlier = self.desk.earlier(session.id, self.given.call_id)
        self.may_have_happened = earlier is not None and grant.tool.mutates
        if earlier is not None and earlier.argument_digest == self.digest:
            return self._replay(grant, earlier)
        envelope = self._conflict() if earlier is not None else self._do(grant)
        written = self._write(session, grant.authority.id)
        if not written:
            return self._unwritten(grant)
        if earlier is None and envelope.code not in _PASSING:
            self.desk.remember(session.id, self.given.call_id, Answer(self.digest, envelope))
        return envelope

    def _do(self, grant: Grant) -> Envelope:
        fault = grant.tool.fault(self.given.arguments)
        if fault:
            self.error_code = str(Code.ARGUMENTS_REJECTED)
            hint = f"See the published schema of {self.given.tool}."
            return failure(Code.ARGUMENTS_REJECTED, f"{fault}. Nothing was done.", hint)
        work = Work(
            self.given.call_id,
            self.given.tool,
            self.digest,
            grant.caller.session,
            grant.authority,
            grant.caller.team_id,
            self.desk.fence(),
            self.desk.databases,
        )
        return self._mutate(grant, work) if grant.tool.mutates else self._execute(grant, work)

    def _mutate(self, grant: Grant, work: Work) -> Envelope:
        is_new = receipts.intend(work)
        self.may_have_happened = True
        if not is_new:
            return self._made_before(grant)
        envelope = self._execute(grant, work)
        if envelope.success:
            self.outcome = State.APPLIED
        elif self.outcome != State.UNKNOWN:
            self.outcome = State.REFUSED
        return envelope

    def _execute(self, grant: Grant, work: Work) -> Envelope:
        """Make the executor out of this call's own facts, use it, drop it."""
        try:
            result = grant.tool.make(work)(self.given.arguments)
        except ToolFailure as failed:
            self.outcome, self.error_code = "failed", str(failed.code)
            return failure(failed.code, failed.message, failed.hint)
        except Exception:
            logger.exception("The tool %s failed on a fault of ours", self.given.tool)
            self.error_code = str(Code.UNAVAILABLE)
            self.outcome = State.UNKNOWN if grant.tool.mutates else "failed"
            code = Code.UNKNOWN if grant.tool.mutates else Code.UNAVAILABLE
            return failure(code, f"{self.given.tool} failed on a fault of the platform.", _READ_RECEIPT)
        self.outcome = "succeeded"
        return Envelope(True, result)

    def _made_before(self, grant: Grant) -> Envelope:
        """The intent could not be written: the id was used before, or the session ended this moment."""
        earlier = receipts.find_receipt(self.given.call_id)
        if earlier is None:
            raise Rejected(Code.SESSION_ENDED, grant.caller)
        if earlier.session_id != grant.caller.session.id or earlier.argument_digest != self.digest:
            return self._conflict()
        self.outcome = str(earlier.state if earlier.state != State.INTENT else State.UNKNOWN)
        return self._from_receipt(grant, earlier)

    def _conflict(self) -> Envelope:
        self.error_code = str(Code.CALL_CONFLICT)
        return failure(
            Code.CALL_CONFLICT,
            "A call with this id was made before, with other arguments. Nothing was done.",
            "Make a new id for each call.",
        )

    def _replay(self, grant: Grant, earlier: Answer) -> Envelope:
        """The same id with the same arguments gets the stored answer. A read whose answer is gone is read again."""
        if earlier.envelope is not None:
            return earlier.envelope
        if not grant.tool.mutates:
            return self._do(grant)
        receipt = receipts.find_receipt(self.given.call_id)
        if receipt is None:  # its arguments were rejected: nothing was ever meant to happen
            return self._do(grant)
        return self._from_receipt(grant, receipt)

    def _from_receipt(self, grant: Grant, receipt: Receipt) -> Envelope:
        """The answer of a mutation that was made before: out of its receipt, never by doing it again."""
        database = self.desk.databases.of(grant.caller.team_id, grant.authority.workflow_id)
        try:
            kept = writing.read_receipt(database, receipt.pk)
        except ToolFailure as failed:
            return failure(Code.UNKNOWN, f"{_NOT_STORED} {failed.message}", failed.hint)
        if kept is not None and kept.applied:
            return Envelope(True, kept.result)
        if kept is None and receipt.state in (State.INTENT, State.UNKNOWN, State.APPLIED):
            return failure(Code.UNKNOWN, _NOT_STORED, _READ_RECEIPT)
        return failure(
            Code.CALL_CONFLICT,
            "This call was made before and changed nothing. It was not sent again.",
            "Make a new id for a new try.",
        )

    def _unwritten(self, grant: Grant) -> Envelope:
        """The session ended, or the disk failed, before the row was written: what was done is not shown as known."""
        if grant.tool.mutates:
            return failure(Code.UNKNOWN, "The session ended during the call.", _READ_RECEIPT)
        return failure(Code.SESSION_ENDED, _foreign(self.given.tool))

    def _reject(self, rejected: Rejected, *, with_row: bool) -> Envelope:
        code, caller = rejected.code, rejected.caller
        self.verdict = self.error_code = str(code)
        self.outcome = str(State.REFUSED)
        sides = _sides(self.given, self.desk.listener, rejected)
        if code in OWNERSHIP:
            diagnostics.record(self.tool, code, sides)
        owner = caller.session if caller is not None else None
        if self.desk.listener is not None:
            owner = identity.find(self.desk.listener)
        if owner is not None and with_row:
            self._write(owner, owner.parent_id or owner.id)
        return failure(
            code,
            _foreign(self.tool) if code in OWNERSHIP else _MESSAGES[code].format(tool=self.tool),
            _HINTS.get(code, "").format(tools=", ".join(catalogue.names())),
            session=str(caller.session.id) if caller else "",
            authority=str(sides.authority.id) if sides.authority else "",
        )

    def _write(self, session: SessionFacts, authority: UUID) -> bool:
        """Append the call's row. False when the chain takes none any more or the file could not be written."""
        session_id, workflow_id, run_id, step_id, attempt_id = session.texts
        entry = Entry(
            call_id=str(self.given.call_id),
            session_id=session_id,
            authority_id=str(authority),
            workflow_id=workflow_id,
            run_id=run_id,
            step_id=step_id,
            attempt_id=attempt_id,
            tool=self.tool,
            argument_digest=self.digest,
            verdict=self.verdict,
            outcome=str(self.outcome),
            error_code=self.error_code,
            started_us=self.started_us,
            duration_us=(time.perf_counter_ns() - self.clock) // 1000,
        )
        try:
            self.desk.append(session.id, entry)
        except JournalClosed:
            return False
        except OSError:
            logger.exception("A row of the ledger could not be written")
            return False
        return True


def _sides(given: Call, listener: UUID | None, rejected: Rejected) -> Sides:
    """The caller, and whose session was meant: the listener's, else the one named, else the caller's own."""
    caller = rejected.caller
    meant = _meant(given, listener, caller)
    authority = rejected.authority
    if authority is None and meant is not None:
        authority = identity.find(meant.parent_id) if meant.parent_id else meant
    if authority is None and caller is not None and meant is None:
        authority = caller.parent or (None if caller.session.parent_id else caller.session)
    return Sides(caller, meant, authority, given.named)


def _meant(given: Call, listener: UUID | None, caller: Caller | None) -> SessionFacts | None:
    if listener is not None and (caller is None or listener != caller.session.id):
        return identity.find(listener)
    for name in given.named:
        try:
            found = identity.find(UUID(name))
        except ValueError:
            continue
        if found is not None:
            return found
    return None


def _shown(tool: str) -> str:
    """A tool's name in rows, logs and answers."""
    return tool if catalogue.known(tool) else wire.unknown_name(tool)


def _foreign(tool: str) -> str:
    return f"{tool} caller does not own this tool session"


_READ_RECEIPT = "Of a mutation, read_receipt(call_id) tells what became of it; it is never sent again."
_NOT_STORED = "This call was made before and its answer is not stored. It was not sent again."
_PASSING = frozenset({Code.BUSY, Code.UNAVAILABLE})
_MESSAGES = {
    Code.TOOL_NOT_FOUND: "There is no tool of the name that was asked for ({tool}). Nothing was done.",
    Code.TOOL_NOT_GRANTED: "{tool} is not granted to this session. Nothing was done.",
    Code.TOOL_RATE: "The limit of tool calls of this session is reached. Nothing was done.",
}
_HINTS = {
    Code.TOOL_NOT_FOUND: "The step's `tools` names what it has. The tools are: {tools}.",
    Code.TOOL_NOT_GRANTED: "Name it in the step's `tools`, and give `access.db` what it needs: read or read-write.",
    Code.TOOL_RATE: "Raise limits.tool_calls, or take more rows in each call.",
}
