"""A workflow's own migrations: `db/migrations/*.sql`, applied in the order of their names, each once."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from apps.tools.errors import Code, MigrationRefused, ToolFailure
from apps.tools.workflow_db.database import Connection, make
from apps.tools.workflow_db.guard import RESERVED, Mode
from apps.tools.workflow_db.sql import check_copies, statements_of, without_lead

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\.sql")
LARGEST = 1024 * 1024
SECONDS = 60.0  # for all that one import applies: so long the workflow waits
_NAME_IN_SQL = r"""(?:"(?:[^"]|"")*"|\[[^\]]*\]|`(?:[^`]|``)*`|[\w$]+)"""
_ADDS_COLUMN = re.compile(rf"ALTER\s+TABLE\s+{_NAME_IN_SQL}(?:\s*\.\s*{_NAME_IN_SQL})?\s+ADD\b", re.IGNORECASE)


@dataclass(frozen=True)
class Migration:
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@contextmanager
def applying(path: Path, migrations: Sequence[Migration], *, snapshots: Path, now: datetime) -> Iterator[list[str]]:
    """Apply what is not applied yet, all in one transaction that ends with the block, whose value is the names.

    A snapshot first when rows may be lost. Raises MigrationRefused, and the database is as it was: a file that was
    applied before has changed, SQL fails, or all of it takes longer than SECONDS. So it is when the block raises.
    """
    check(migrations)
    make(path)
    connection = Connection(path, mode=Mode.MIGRATE)
    try:
        if not _pending(connection, migrations):
            yield []
            return
        with _writing(connection), ExitStack() as unless_done:
            waiting = _pending(connection, migrations)
            _run_all(connection, waiting)
            snapshot = ""
            if waiting and _may_lose_rows(path, connection.touched):
                target = snapshots / f"{now:%Y%m%dT%H%M%S%fZ}-before-{waiting[0].name.removesuffix('.sql')}.sqlite3"
                unless_done.callback(target.unlink, missing_ok=True)
                _snapshot(path, target)
                snapshot = target.name
            _note(connection, waiting, snapshot)
            yield [migration.name for migration in waiting]
            unless_done.pop_all()
    finally:
        connection.close()


@contextmanager
def _writing(connection: Connection) -> Iterator[None]:
    try:
        with connection.writing():
            yield
    except ToolFailure as failed:
        raise MigrationRefused(f"{failed.message} Nothing was applied. Try again.", status=409) from None


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


def _run_all(connection: Connection, migrations: Sequence[Migration]) -> None:
    until = time.monotonic() + SECONDS
    for migration in migrations:
        _run(connection, migration, until)
    _check_reserved(connection)


def _note(connection: Connection, migrations: Sequence[Migration], snapshot: str) -> None:
    for migration in migrations:
        row = (migration.name, migration.digest, snapshot or None)
        connection.for_platform(connection.statements.add_migration, row)


def _pending(connection: Connection, migrations: Sequence[Migration]) -> list[Migration]:
    applied = dict(connection.for_platform(connection.statements.applied))
    for migration in migrations:
        if applied.get(migration.name, migration.digest) != migration.digest:
            raise MigrationRefused(
                f"db/migrations/{migration.name} was applied before with other content. Nothing was applied."
                " A migration that was applied is never edited: put the change into a new file."
            )
    return [migration for migration in migrations if migration.name not in applied]


def _run(connection: Connection, migration: Migration, until: float) -> None:
    for number, statement in enumerate(statements_of(migration.sql, name=migration.name), start=1):
        touched = set(connection.touched)
        try:
            check_copies(statement)
            with connection.for_caller(until - time.monotonic()) as raw:
                for _ in raw.execute(statement):  # its rows are nobody's, and may be without end
                    pass
            if _ADDS_COLUMN.match(without_lead(statement)):
                connection.touched.intersection_update(touched)
        except ToolFailure as failed:
            told = f"{failed.message} {failed.hint}".strip()
            if failed.code == Code.LIMIT_EXCEEDED and time.monotonic() > until:
                told = f"The migrations of one import have {SECONDS:g} s, which were over. Do it in several imports."
            where = f"db/migrations/{migration.name}, statement {number}"
            raise MigrationRefused(f"{where}: {told} Nothing was applied.") from None


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


def _snapshot(path: Path, target: Path) -> None:
    """The database as it was before the open transaction."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with closing(_before(path)) as raw, closing(sqlite3.connect(target)) as copy:
        raw.backup(copy)
    target.chmod(0o600)


def _before(path: Path) -> sqlite3.Connection:
    """A second connection: what is not committed is seen by the first alone."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
