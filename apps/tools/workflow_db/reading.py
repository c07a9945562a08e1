"""Reading a workflow's database: one read-only statement, a description, an integrity check."""

from __future__ import annotations

import sqlite3
from typing import Any

from apps.tools.errors import Code, ToolFailure
from apps.tools.workflow_db import values
from apps.tools.workflow_db.database import TIME_LIMIT_S, Connection, Database
from apps.tools.workflow_db.sql import check_copies, first_word

MAX_ROWS = 10_000
DEFAULT_ROWS = 500
PAGE_BYTES = 2 * 1024 * 1024
READING_WORDS = frozenset({"SELECT", "WITH", "VALUES", "PRAGMA", "EXPLAIN"})


def query(
    database: Database,
    sql: str,
    parameters: Any = None,
    *,
    max_rows: int = DEFAULT_ROWS,
    offset: int = 0,
    seconds: float = TIME_LIMIT_S,
) -> dict[str, Any]:
    """`{columns, rows, row_count, offset, next_offset}`; rows are objects.

    `next_offset` is null only when nothing follows: a page ends at `max_rows` or at PAGE_BYTES, never in silence.
    """
    word = first_word(sql)
    if word not in READING_WORDS:
        raise ToolFailure(
            Code.SQL_ERROR,
            f"Refused: this tool reads; {word or 'an empty text'} does not. Nothing was done.",
            f"Begin with {', '.join(sorted(READING_WORDS))}; mutate_workflow_db takes INSERT, UPDATE and DELETE.",
        )
    check_copies(sql)
    bound = values.parameters(parameters)
    with database.reader.for_caller(seconds) as raw:
        cursor = raw.execute(sql, bound)
        columns = _columns(cursor)
        for _ in range(offset):
            if cursor.fetchone() is None:
                break
        return _page(cursor, columns, max_rows, offset)


def _columns(cursor: sqlite3.Cursor) -> list[str]:
    columns = [field[0] for field in cursor.description or ()]
    if len(set(columns)) != len(columns):
        double = sorted({name for name in columns if columns.count(name) > 1})
        raise ToolFailure(
            Code.SQL_ERROR,
            f"Two columns of the result have the same name: {', '.join(double)}. Nothing was returned.",
            "Name them apart with AS.",
        )
    return columns


def _page(cursor: sqlite3.Cursor, columns: list[str], max_rows: int, offset: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    taken = 0
    more = False
    for found in cursor:
        taken += values.size(found)
        if not rows and not values.fits(taken):
            raise ToolFailure(
                Code.RESULT_TOO_LARGE,
                "One row of the result is larger than an answer may be (4 MB). Nothing of it was cut off and shown.",
                "Select fewer of its columns, or parts of them with substr.",
            )
        if len(rows) == max_rows or (rows and taken > PAGE_BYTES):
            more = True
            break
        rows.append(values.row(columns, found))
    return {
        "columns": columns,
        "rows": rows,
        "row_count": len(rows),
        "offset": offset,
        "next_offset": offset + len(rows) if more else None,
    }


def describe(database: Database) -> dict[str, Any]:
    """The tables and views with their columns, keys, indexes and row counts; never the platform's own."""
    reader = database.reader
    tables = []
    for name, kind, sql in reader.tables():
        described: dict[str, Any] = {
            "name": name,
            "type": kind,
            "columns": [
                {
                    "name": column,
                    "type": type_,
                    "not_null": bool(not_null),
                    "default": default,
                    "primary_key": bool(key),
                }
                for column, type_, not_null, default, key in reader.columns(name)
            ],
            "indexes": [index for index, _ in reader.for_platform(reader.statements.indexes, (name,))],
            "sql": sql,
        }
        tables.append(described)
    _count(reader, [described for described in tables if described["type"] == "table"])
    return {"tables": tables, "bytes": database.path.stat().st_size, "sqlite_version": sqlite3.sqlite_version}


def _count(reader: Connection, tables: list[dict[str, Any]]) -> None:
    """All of them within the time of one statement."""
    with reader.for_caller() as raw:
        for table in tables:
            reader.check_time()
            quoted = table["name"].replace('"', '""')
            (table["rows"],) = raw.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()  # noqa: S608 - quoted


def integrity_check(database: Database) -> dict[str, Any]:
    """`{ok, messages, foreign_keys}`: what SQLite's own checks say."""
    with database.reader.for_caller() as raw:
        messages = [row[0] for row in raw.execute("PRAGMA integrity_check(100)")]
        broken = [
            {"table": table, "rowid": rowid, "refers_to": parent}
            for table, rowid, parent, _ in raw.execute("PRAGMA foreign_key_check").fetchmany(100)
        ]
    return {"ok": messages == ["ok"] and not broken, "messages": messages, "foreign_keys": broken}
