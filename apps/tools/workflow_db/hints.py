"""The likely fix of an SQL error: what the caller should look at, with the names that exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apps.tools.workflow_db.database import Connection

_UNKNOWN_TABLE = re.compile(r"no such table: (?:main\.)?(\S+)")
_UNKNOWN_COLUMN = re.compile(r"(?:no such column: |has no column named )(\S+)")
_FIXED: tuple[tuple[str, str], ...] = (
    (
        'unrecognized token: "$',
        "A JSON path is a text: put it in single quotes, as in json_extract(data, '$.name').",
    ),
    ('near "$"', "A JSON path is a text: put it in single quotes, as in json_extract(data, '$.name')."),
    ("bad JSON path", "A JSON path starts with $, as in '$.name' or '$[0]', and stands in single quotes."),
    ("JSON path error", "A JSON path starts with $, as in '$.name' or '$[0]', and stands in single quotes."),
    ("malformed JSON", "The value is no JSON text. Guard with json_valid(column), or store it with json.dumps."),
    ("one statement at a time", "Send one statement a call; mutate_workflow_db takes several in `statements`."),
    (
        "Incorrect number of bindings",
        "Give as many values in `params` as there are ? in the SQL, or named ones for :name.",
    ),
    ("did not supply a value for binding", "Each :name in the SQL needs its key in `params`."),
    ("UNIQUE constraint failed", "Such a row is there already: use ON CONFLICT (...) DO UPDATE, or DO NOTHING."),
    ("NOT NULL constraint failed", "Give that column a value."),
    ("FOREIGN KEY constraint failed", "The row it refers to does not exist, or rows still refer to the one deleted."),
    ("CHECK constraint failed", "The table allows other values for that column: see action=describe."),
    ("readonly database", "This tool only reads; use mutate_workflow_db to write."),
    (
        "database or disk is full",
        "The workflow's database has reached its size limit: delete rows, or keep files elsewhere.",
    ),
    ("string or blob too big", "One value may have 4 MB. Keep large data in a file and its name in the table."),
    ("Could not decode to UTF-8", "The column holds bytes, not text: select hex(column), or CAST(column AS BLOB)."),
    ("pattern too complex", "A pattern may have 1000 characters; instr(text, part) > 0 finds a longer part."),
    ("too large for each other", "Give smaller values; instead of json_patch, json_set takes single keys."),
    ("widths and precisions", "All of one format together may be 4 million: a value is no longer than that."),
    ("ambiguous column name", "Put the table's name or alias before the column."),
    ("misuse of aggregate", "Use HAVING for conditions on aggregates, or a subquery."),
    ("Python int too large", "Whole numbers have 64 bits: pass larger ones as text."),
    (
        "type 'list' is not supported",
        "A parameter is a text, a number, a boolean or null: pass lists and objects as JSON text.",
    ),
    (
        "type 'dict' is not supported",
        "A parameter is a text, a number, a boolean or null: pass lists and objects as JSON text.",
    ),
    (
        "syntax error",
        "This is SQLite's SQL. Texts stand in single quotes, names in double quotes; values go in `params`.",
    ),
)


def likely_fix(connection: Connection, error: str, why: str) -> str:
    """One sentence; with names out of the schema where a name is wrong."""
    if why:
        return "See action=describe of query_workflow_db for what there is."
    for pattern, advise in _BY_SCHEMA:
        found = pattern.search(error)
        if found:
            return advise(connection, found[1])
    return next((hint for mark, hint in _FIXED if mark in error), "")


def _for_table(connection: Connection, name: str) -> str:
    tables = [table for table, _, _ in connection.tables()]
    if not tables:
        return "The workflow's database has no tables yet: add a file under db/migrations that creates them."
    return f"{_nearest(name, tables)}The tables are: {', '.join(tables[:30])}."


def _for_column(connection: Connection, name: str) -> str:
    column = name.rpartition(".")[2].strip("\"'")
    columns = {field[0]: table for table, _, _ in connection.tables()[:30] for field in connection.columns(table)}
    quotes = " A text stands in single quotes, not in double ones."
    near = _nearest(column, list(columns))
    known = ", ".join(f"{table}.{field}" for field, table in list(columns.items())[:40])
    return f"{near}The columns are: {known}.{quotes}" if columns else quotes.strip()


def _nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}? " if near else ""


_BY_SCHEMA: tuple[tuple[re.Pattern[str], Callable[[Connection, str], str]], ...] = (
    (_UNKNOWN_TABLE, _for_table),
    (_UNKNOWN_COLUMN, _for_column),
)
