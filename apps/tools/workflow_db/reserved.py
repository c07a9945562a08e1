"""The platform's own tables inside a workflow's database: receipts, fences, applied migrations. No tool sees them."""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Iterable
from functools import cache

RECEIPTS = """
CREATE TABLE IF NOT EXISTS _pulse_receipts (
    call_id TEXT PRIMARY KEY, state TEXT NOT NULL, run_id TEXT, session_id TEXT NOT NULL,
    argument_digest TEXT NOT NULL, result TEXT, at TEXT NOT NULL
) WITHOUT ROWID
"""
FENCES = "CREATE TABLE IF NOT EXISTS _pulse_fences (run_id TEXT PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID"
MIGRATIONS = """
CREATE TABLE IF NOT EXISTS _pulse_migrations (
    name TEXT PRIMARY KEY, digest TEXT NOT NULL, snapshot TEXT, at TEXT NOT NULL
) WITHOUT ROWID
"""
RAISE_FENCE = (
    "INSERT INTO _pulse_fences (run_id, fence) VALUES (?, ?)"
    " ON CONFLICT (run_id) DO UPDATE SET fence = max(fence, excluded.fence)"
)
TABLES = (RECEIPTS, FENCES, MIGRATIONS)
"""Their text is compared with what a database holds: to change one, change it in the databases too."""
Object = tuple[str, str, str, str | None]
"""Type, name, table and SQL, as sqlite_master has them."""
_NAMES_US = re.compile(r"(?<![\w$])_pulse_", re.IGNORECASE)


def faults(found: Iterable[Object]) -> list[str]:
    """What concerns the platform's tables and is not the platform's, and what of the platform's is missing."""
    ours = _as_made()
    there = {each for each in found if each in ours or any(_NAMES_US.search(text or "") for text in each[1:])}
    return [
        *(f"the {kind} {name}" for kind, name, _, _ in sorted(there - ours, key=str)),
        *(f"no {kind} {name} as it was made" for kind, name, _, _ in sorted(ours - there, key=str)),
    ]


@cache
def _as_made() -> frozenset[Object]:
    raw = sqlite3.connect(":memory:")
    for table in TABLES:
        raw.execute(table)
    made = frozenset(raw.execute(_TEXTS["reserved"]))
    raw.close()
    return made


class Statements:
    """The platform's statements for one connection, each with a mark that a caller cannot guess (see `guard.Guard`)."""

    def __init__(self) -> None:
        mark = secrets.token_hex(16)
        for name, text in _TEXTS.items():
            setattr(self, name, f"/* {mark} */ {text}")

    begin: str
    commit: str
    rollback: str
    fence: str
    raise_fence: str
    receipt: str
    add_receipt: str
    applied: str
    add_migration: str
    tables: str
    indexes: str
    columns: str
    reserved: str
    schema_version: str


_TEXTS = {
    "begin": "BEGIN IMMEDIATE",
    "commit": "COMMIT",
    "rollback": "ROLLBACK",
    "fence": "SELECT fence FROM _pulse_fences WHERE run_id = ?",
    "raise_fence": RAISE_FENCE,
    "receipt": "SELECT state, result, argument_digest, session_id, at FROM _pulse_receipts WHERE call_id = ?",
    "add_receipt": (
        "INSERT INTO _pulse_receipts (call_id, state, run_id, session_id, argument_digest, result, at)"
        " VALUES (?, ?, ?, ?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"
    ),
    "applied": "SELECT name, digest FROM _pulse_migrations",
    "add_migration": (
        "INSERT INTO _pulse_migrations (name, digest, snapshot, at)"
        " VALUES (?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"
    ),
    "reserved": (
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name LIKE '%\\_pulse\\_%' ESCAPE '\\'"
        " OR tbl_name LIKE '\\_pulse\\_%' ESCAPE '\\' OR sql LIKE '%\\_pulse\\_%' ESCAPE '\\'"
    ),
    "schema_version": "PRAGMA schema_version",
    "tables": (
        "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
        " AND name NOT LIKE '\\_pulse\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    ),
    "indexes": (
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL ORDER BY name"
    ),
    "columns": 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?)',
}
