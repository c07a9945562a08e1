"""A workflow's own migrations: `db/migrations/*.sql`, applied in the order of their names, each once."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from apps.tools.errors import MigrationRefused, ToolFailure
from apps.tools.workflow_db.database import Connection, make
from apps.tools.workflow_db.guard import Mode
from apps.tools.workflow_db.sql import statements_of, without_lead

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\.sql")
LARGEST = 1024 * 1024
SECONDS = 60.0
_DESTRUCTIVE = re.compile(
    r"(DROP|DELETE|UPDATE|REPLACE|INSERT\s+OR\s+REPLACE|ALTER\s+TABLE\s+.+?\s+(DROP|RENAME))\b",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Migration:
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def is_destructive(self) -> bool:
        return any(_DESTRUCTIVE.match(without_lead(statement)) for statement in statements_of(self.sql))


def apply(path: Path, migrations: Sequence[Migration], *, snapshots: Path, now: datetime) -> list[str]:
    """Apply what is not applied yet, all in one transaction; returns the names. A snapshot first when rows may be lost.

    Raises MigrationRefused, and the database is as it was: a file that was applied before has changed, or SQL fails.
    """
    make(path)
    connection = Connection(path, mode=Mode.MIGRATE)
    try:
        return _apply(connection, sorted(migrations, key=lambda each: each.name), snapshots, now)
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


def _apply(connection: Connection, migrations: Sequence[Migration], snapshots: Path, now: datetime) -> list[str]:
    check(migrations)
    pending = _pending(connection, migrations)
    if not pending:
        return []
    snapshot = ""
    if any(migration.is_destructive for migration in pending) and connection.tables():
        snapshot = _snapshot(connection, snapshots, pending[0].name, now)
    with connection.writing():
        for migration in _pending(connection, pending):
            _run(connection, migration)
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
        try:
            with connection.for_caller(SECONDS) as raw:
                raw.execute(statement).fetchall()
        except ToolFailure as failed:
            raise MigrationRefused(
                f"db/migrations/{migration.name}, statement {number}: {failed.message} {failed.hint}".strip()
                + " Nothing was applied."
            ) from None


def _snapshot(connection: Connection, snapshots: Path, name: str, now: datetime) -> str:
    snapshots.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = snapshots / f"{now:%Y%m%dT%H%M%S%fZ}-before-{name.removesuffix('.sql')}.sqlite3"
    copy = sqlite3.connect(target)
    try:
        connection.raw.backup(copy)
    finally:
        copy.close()
    target.chmod(0o600)
    return target.name
