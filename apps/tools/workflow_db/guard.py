"""What a statement may touch, decided while SQLite compiles it. Everything that is not listed is denied."""

from __future__ import annotations

import enum
import sqlite3

RESERVED = "_pulse_"
READABLE_INTERNAL = frozenset({"sqlite_sequence", "sqlite_stat1"})
READ_PRAGMAS = frozenset(
    {
        "foreign_key_check",
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "integrity_check",
        "page_count",
        "page_size",
        "quick_check",
        "table_info",
        "table_xinfo",
        "user_version",
    }
)
NO_ARGUMENT = frozenset({"page_count", "page_size", "user_version"})
# Each was looked at: one call of it is short, and reaches nothing outside. json_pretty indents without a bound.
_OFFERED = """
-> ->> abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling changes char coalesce concat concat_ws cos cosh
count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp first_value floor
format glob group_concat hex if ifnull iif instr json json_array json_array_length json_error_position json_extract
json_group_array json_group_object json_insert json_object json_patch json_quote json_remove json_replace json_set
json_type json_valid jsonb jsonb_array jsonb_extract jsonb_group_array jsonb_group_object jsonb_insert jsonb_object
jsonb_patch jsonb_remove jsonb_replace jsonb_set julianday lag last_insert_rowid last_value lead length like
likelihood likely ln log log10 log2 lower ltrim max min mod nth_value ntile nullif octet_length percent_rank pi pow
power printf quote radians random randomblob rank regexp replace round row_number rtrim sign sin sinh soundex
sqlite_compileoption_used sqlite_source_id sqlite_version sqrt strftime string_agg substr substring subtype sum tan
tanh time timediff total total_changes trim trunc typeof unhex unicode unistr unistr_quote unixepoch unlikely upper
zeroblob
"""
FUNCTIONS = frozenset(_OFFERED.split())
OF_ALTER_TABLE = ("sqlite_rename_", "sqlite_drop_", "sqlite_add_", "sqlite_find_", "sqlite_fail")
"""What SQLite calls by itself when it alters a table; from a statement they cannot be called."""
DDL_HINT = (
    "Tables are changed by a file under db/migrations, which the platform applies. Tools only read and write rows."
)


class Mode(enum.Enum):
    READ = "read"
    WRITE = "write"
    MIGRATE = "migrate"
    PLATFORM = "platform"


class Guard:
    """The authorizer of one connection. `mode` says for whom the next statement is; `why` is the last denial's reason.

    SQLite asks only when it compiles, and Python keeps compiled statements by their text: the platform's own
    statements carry a text that nobody can guess (`reserved.Statements`), so no caller's text ever meets theirs.
    """

    def __init__(self) -> None:
        self.mode = Mode.PLATFORM
        self.why = ""
        self.touched: set[str] = set()

    def __call__(
        self, action: int, first: str | None, second: str | None, _database: str | None, source: str | None
    ) -> int:
        if self.mode is Mode.PLATFORM:
            # `source` is the trigger or view that asks: nothing of a workflow's runs inside a statement of ours.
            return sqlite3.SQLITE_OK if source is None else sqlite3.SQLITE_DENY
        why = self._denied(action, first or "", second)
        if why is None:
            self._note(action, first or "", second or "")
            return sqlite3.SQLITE_OK
        self.why = why
        return sqlite3.SQLITE_DENY

    def _denied(self, action: int, first: str, second: str | None) -> str | None:
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return None
        if action == sqlite3.SQLITE_READ:
            return self._reading(first)
        if action == sqlite3.SQLITE_FUNCTION:
            return self._calling(second or "")
        if action == sqlite3.SQLITE_PRAGMA:
            return _pragma(first.lower(), second)
        if action in _ROWS:
            return self._writing(first)
        return self._other(action, first, second or "")

    def _note(self, action: int, first: str, second: str) -> None:
        """Which tables may lose rows. A REPLACE deletes without asking: to write is enough."""
        if self.mode is not Mode.MIGRATE:
            return
        if action in _ROWS or action == sqlite3.SQLITE_DROP_TABLE:
            self.touched.add(first.lower())
        elif action == sqlite3.SQLITE_ALTER_TABLE:
            self.touched.add(second.lower())

    def _reading(self, table: str) -> str | None:
        name = table.lower()
        if name.startswith(RESERVED):
            return f"the table {table} is the platform's own"
        if name.startswith("sqlite_") and name not in READABLE_INTERNAL and self.mode is not Mode.MIGRATE:
            return f"{table} is not readable; use action=describe to see the tables and their columns"
        return None

    def _calling(self, function: str) -> str | None:
        name = function.lower()
        if name in FUNCTIONS or (self.mode is Mode.MIGRATE and name.startswith(OF_ALTER_TABLE)):
            return None
        return f"the function {function} is not offered"

    def _writing(self, table: str) -> str | None:
        name = table.lower()
        if self.mode is Mode.READ:
            return "this tool only reads; use mutate_workflow_db to write"
        if name.startswith(RESERVED):
            return f"the table {table} is the platform's own"
        if name.startswith("sqlite_") and self.mode is not Mode.MIGRATE:
            return f"{table} cannot be written"
        return None

    def _other(self, action: int, first: str, second: str) -> str | None:
        if action in _FILES:
            return "ATTACH, DETACH and what reaches other files are not offered: a workflow has one database"
        if action in _TRANSACTIONS:
            return "transactions are the platform's: each call is one, all its statements or none"
        if self.mode is not Mode.MIGRATE:
            return f"the structure of the database cannot be changed here. {DDL_HINT}"
        if not any(name.lower().startswith(RESERVED) for name in (first, second)):
            return None
        if action == sqlite3.SQLITE_ANALYZE:
            return "ANALYZE without a name takes the platform's own tables too; name one table: ANALYZE mine"
        return f"names that begin with {RESERVED} are the platform's own"


def _pragma(name: str, argument: str | None) -> str | None:
    if name not in READ_PRAGMAS or (name in NO_ARGUMENT and argument is not None):
        return f"PRAGMA {name} is not offered; these are: {', '.join(sorted(READ_PRAGMAS))}"
    if argument is not None and argument.lower().startswith(RESERVED):
        return f"the table {argument} is the platform's own"
    return None


_ROWS = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_FILES = frozenset({sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_CREATE_VTABLE})
_TRANSACTIONS = frozenset({sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT})
