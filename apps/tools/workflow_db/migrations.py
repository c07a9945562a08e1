"""A workflow's own migrations: `db/migrations/*.sql`, applied in the order of their names, each once."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from apps.tools.errors import MigrationRefused, ToolFailure
from apps.tools.workflow_db.database import Connection, make
from apps.tools.workflow_db.guard import RESERVED, Mode
from apps.tools.workflow_db.sql import check_copies, statements_of, without_lead

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\.sql")
LARGEST = 1024 * 1024
SECONDS = 60.0
_NAME_IN_SQL = r"""(?:"(?:[^"]|"")*"|\[[^\]]*\]|`(?:[^`]|``)*`|[\w$]+)"""
_ADDS_COLUMN = re.compile(rf"ALTER\s+TABLE\s+{_NAME_IN_SQL}(?:\s*\.\s*{_NAME_IN_SQL})?\s+ADD\b", re.IGNORECASE)


@dataclass(frozen=True)
class Migration:
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def apply(path: Path, migrations: Sequence[Migration], *, snapshots: Path, now: datetime) -> list[str]:
    """Apply what is not applied yet, all in one transaction; returns the names. A snapshot first when rows may be lost.

    Raises MigrationRefused, and the database is as it was: a file that was applied before has changed, or SQL fails.
    """
    make(path)
    connection = Connection(path, mode=Mode.MIGRATE)
    try:
        return _apply(path, connection, sorted(migrations, key=lambda each: each.name), snapshots, now)
    finally:
        connection.close()


def check(migrations: Sequence[Migration]) -> None:
    """What can be told without a database: names, sizes, whole statements. Raises MigrationRefused."""
    for migration in migrations:
        if not NAME.fullmatch(migration.name):
            raise MigrationRefused(
                f"db/migrations/{migration.name[:120]!r} is no name for a migration. Nothing was applied."
            )
        if len(migration.sql) > LARGEST:
            raise MigrationRefused(
                f"db/migrations/{migration.name} has more than {LARGEST} bytes. Nothing was applied."
            )
        statements_of(migration.sql, name=migration.name)


def _apply(
    path: Path, connection: Connection, migrations: Sequence[Migration], snapshots: Path, now: datetime
) -> list[str]:
    check(migrations)
    pending = _pending(connection, migrations)
    if not pending:
        return []
    with connection.writing():
        waiting = _pending(connection, pending)
        for migration in waiting:
            _run(connection, migration)
        _check_reserved(connection)
        snapshot = _snapshot(path, snapshots, pending[0].name, now) if _may_lose_rows(path, connection.touched) else ""
        for migration in waiting:
            connection.for_platform(
                connection.statements.add_migration, (migration.name, migration.digest, snapshot or None)
            )
    return [migration.name for migration in pending]


def _pending(connection: Connection, migrations: Sequence[Migration]) -> list[Migration]:
    applied = dict(connection.for_platform(connection.statements.applied))
    for migration in migrations:
        if applied.get(migration.name, migration.digest) != migration.digest:
            raise MigrationRefused(
                f"db/migrations/{migration.name} was applied before with other content. Nothing was applied."
                " A migration that was applied is never edited: put the change into a new file."
            )
    return [migration for migration in migrations if migration.name not in applied]


def _run(connection: Connection, migration: Migration) -> None:
    for number, statement in enumerate(statements_of(migration.sql, name=migration.name), start=1):
        touched = set(connection.touched)
        try:
            check_copies(statement)
            with connection.for_caller(SECONDS) as raw:
                raw.execute(statement).fetchall()
            if _ADDS_COLUMN.match(without_lead(statement)):
                connection.touched.intersection_update(touched)
        except ToolFailure as failed:
            raise MigrationRefused(
                f"db/migrations/{migration.name}, statement {number}: {failed.message} {failed.hint}".strip()
                + " Nothing was applied."
            ) from None


def _check_reserved(connection: Connection) -> None:
    try:
        connection.check_reserved()
    except ToolFailure as failed:
        raise MigrationRefused(
            f"{failed.message} Names that begin with {RESERVED} are the platform's own, also within views, triggers,"
            " keys and comments. Nothing was applied."
        ) from None


def _may_lose_rows(path: Path, touched: Collection[str]) -> bool:
    """True when a table that the migrations wrote or dropped held rows before them: the open transaction is not seen
    from here."""
    with closing(_before(path)) as raw:
        tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        held = [name.replace('"', '""') for name in tables if name.lower() in touched]
        return any(raw.execute(f'SELECT EXISTS (SELECT 1 FROM "{name}")').fetchone()[0] for name in held)  # noqa: S608


def _snapshot(path: Path, snapshots: Path, name: str, now: datetime) -> str:
    """The database as it was before the open transaction."""
    snapshots.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = snapshots / f"{now:%Y%m%dT%H%M%S%fZ}-before-{name.removesuffix('.sql')}.sqlite3"
    with closing(_before(path)) as raw, closing(sqlite3.connect(target)) as copy:
        raw.backup(copy)
    target.chmod(0o600)
    return target.name


def _before(path: Path) -> sqlite3.Connection:
    """A second connection: what is not committed is seen by the first alone."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
