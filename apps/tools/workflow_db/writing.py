"""Writing a workflow's database: all statements of a call in one transaction, with its receipt and its fence."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.tools.errors import Code, ToolFailure
from apps.tools.workflow_db import values
from apps.tools.workflow_db.database import TIME_LIMIT_S, Connection, Database
from apps.tools.workflow_db.sql import check_copies, first_word

WRITING_WORDS = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"})
MAX_STATEMENTS = 200
MAX_PARAM_SETS = 5000
MAX_RETURNED = 500
APPLIED = "applied"
VOID = "void"


@dataclass(frozen=True)
class Statement:
    sql: str
    parameter_sets: Sequence[Any]
    many: bool = False


@dataclass(frozen=True)
class Mark:
    """Whose mutation this is: what the receipt in the reserved table says."""

    call_id: UUID
    session_id: UUID
    argument_digest: str
    run_id: UUID | None
    fence: int | None


@dataclass(frozen=True)
class Kept:
    """A receipt as the workflow's database has it. `applied` is False for a call that is void and can never apply."""

    applied: bool
    result: Any
    argument_digest: str
    session_id: UUID
    at: str


def mutate(
    database: Database, statements: Sequence[Statement], mark: Mark, *, is_live: Callable[[], bool] = lambda: True
) -> dict[str, Any]:
    """Apply the statements, all or none, and keep the receipt in the same transaction.

    `is_live` is asked last, before the commit. Raises ToolFailure, and nothing was changed: an SQL error, a time limit,
    a lock, a lost lease (`lease_lost`), a call that was settled as never sent (`call_conflict`), a session that has
    ended meanwhile (`session_ended`), a database whose receipts are not the platform's any more (`database_altered`).
    """
    for statement in statements:
        _check_word(statement.sql)
        check_copies(statement.sql)
    writer = database.writer
    with writer.writing():
        writer.check_reserved()
        _check_fence(writer, mark)
        result = _run(writer, statements)
        _add_receipt(writer, mark, APPLIED, result)
        if not is_live():
            raise ToolFailure(Code.SESSION_ENDED, "The session ended during the call. Nothing was changed.")
    return result


def read_receipt(database: Database, call_id: UUID) -> Kept | None:
    """Raises ToolFailure where receipts cannot be relied on (`database_altered`)."""
    database.writer.check_reserved()
    row = database.writer.for_platform(database.writer.statements.receipt, (str(call_id),)).fetchone()
    if row is None:
        return None
    state, result, digest, session_id, at = row
    return Kept(state == APPLIED, json.loads(result) if result else None, digest, UUID(session_id), at)


def settle(database: Database, mark: Mark) -> Kept:
    """What became of a call: its receipt; when there is none the call is made void, so that it can never apply."""
    writer = database.writer
    with writer.writing():
        kept = read_receipt(database, mark.call_id)
        if kept is None:
            _add_receipt(writer, mark, VOID, None)
            return Kept(False, None, mark.argument_digest, mark.session_id, "")
    return kept


def _check_word(sql: str) -> None:
    word = first_word(sql)
    if word in WRITING_WORDS:
        return
    hint = (
        "Use query_workflow_db to read."
        if word in ("SELECT", "VALUES", "EXPLAIN", "PRAGMA")
        else ("Tables are changed by a file under db/migrations, which the platform applies.")
    )
    raise ToolFailure(
        Code.SQL_ERROR,
        f"Refused: this tool takes INSERT, UPDATE and DELETE, not {word or 'an empty text'}. Nothing was done.",
        hint,
    )


def _check_fence(writer: Connection, mark: Mark) -> None:
    if mark.run_id is None or mark.fence is None:
        return
    row = writer.for_platform(writer.statements.fence, (str(mark.run_id),)).fetchone()
    if row is not None and row[0] > mark.fence:
        raise ToolFailure(
            Code.LEASE_LOST,
            "Another worker has taken this run over. Nothing was changed.",
            "The platform goes on with the run; this attempt is ended.",
        )
    if row is None or row[0] < mark.fence:
        writer.for_platform(writer.statements.raise_fence, (str(mark.run_id), mark.fence))


def _run(writer: Connection, statements: Sequence[Statement]) -> dict[str, Any]:
    results = []
    with writer.for_caller(TIME_LIMIT_S) as raw:
        for index, statement in enumerate(statements):
            try:
                results.append(_one(raw, statement, writer.check_time))
            except (sqlite3.Error, sqlite3.Warning) as error:
                if len(statements) > 1:
                    error.args = (f"{error} (statement {index + 1} of {len(statements)})",)
                raise
    answer: dict[str, Any] = {"changes": sum(result["changes"] for result in results)}
    if len(statements) > 1:
        answer["statements"] = results
    else:
        answer.update(results[0])
    return answer


def _one(raw: sqlite3.Connection, statement: Statement, check_time: Callable[[], None]) -> dict[str, Any]:
    check_time()
    if statement.many:
        cursor = raw.executemany(statement.sql, _each(statement.parameter_sets, check_time))
        return {"changes": max(cursor.rowcount, 0)}
    cursor = raw.execute(statement.sql, values.parameters(statement.parameter_sets[0]))
    if cursor.description is None:
        return {"changes": max(cursor.rowcount, 0), "last_row_id": cursor.lastrowid}
    columns = [field[0] for field in cursor.description]
    returned = _returned(cursor, columns)
    return {"changes": len(returned), "last_row_id": cursor.lastrowid, "returned": returned}


def _returned(cursor: sqlite3.Cursor, columns: Sequence[str]) -> list[dict[str, Any]]:
    returned: list[dict[str, Any]] = []
    taken = 0
    for row in cursor:
        taken += values.size(row)
        if len(returned) == MAX_RETURNED or not values.fits(taken):
            raise _too_large(f"RETURNING gave more than {MAX_RETURNED} rows, or more than 4 MB.")
        returned.append(values.row(columns, row))
    return returned


def _too_large(what: str) -> ToolFailure:
    hint = "Leave RETURNING out, or change fewer rows at a time."
    return ToolFailure(Code.RESULT_TOO_LARGE, f"{what} Nothing was changed.", hint)


def _each(sets: Sequence[Any], check_time: Callable[[], None]) -> Iterator[Any]:
    """SQLite forgets an interruption between two runs of a statement."""
    for given in sets:
        check_time()
        yield values.parameters(given)


def _add_receipt(writer: Connection, mark: Mark, state: str, result: Mapping[str, Any] | None) -> None:
    """Raises ToolFailure for a result that no answer could tell: what was applied is never answered as refused."""
    told = None if result is None else json.dumps(result)
    if told is not None and len(told) > values.MOST:
        raise _too_large(f"The result has {len(told)} bytes, more than an answer may have.")
    row = (
        str(mark.call_id),
        state,
        None if mark.run_id is None else str(mark.run_id),
        str(mark.session_id),
        mark.argument_digest,
        told,
    )
    try:
        writer.for_platform(writer.statements.add_receipt, row)
    except sqlite3.IntegrityError:
        raise ToolFailure(
            Code.CALL_CONFLICT,
            "A call with this id was made before, or was settled as never sent. Nothing was changed.",
            "Make a new id for each call; read_receipt(id) tells what became of the earlier one.",
        ) from None
