"""The database of a workflow: one SQLite file that no step ever gets, reached through tools only (BEHAVIOUR 7).

For the platform's own code: `read` for a read-only query, `migrating` and `apply_migrations`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from django.utils import timezone

from apps.tools.errors import MigrationRefused
from apps.tools.workflow_db import database, migrations, reading
from apps.tools.workflow_db.database import Database
from apps.tools.workflow_db.migrations import Migration
from apps.workflows.models import Workflow
from apps.workflows.places import places_of


def open_database(workflow: Workflow) -> Database:
    """The workflow's database, for this thread; use it in a `with`. It is made when it is not there yet."""
    return Database(places_of(workflow).database)


def read(workflow: Workflow, sql: str, parameters: Any = None, **page: int) -> dict[str, Any]:
    """One read-only statement: `{columns, rows, row_count, offset, next_offset}`. Raises ToolFailure."""
    with open_database(workflow) as opened:
        return reading.query(opened, sql, parameters, **page)


def describe(workflow: Workflow) -> dict[str, Any]:
    with open_database(workflow) as opened:
        return reading.describe(opened)


def apply_migrations(workflow: Workflow) -> list[str]:
    """Apply the files of db/migrations that were not applied yet; returns their names. Raises MigrationRefused."""
    with migrating(workflow, places_of(workflow).migrations) as names:
        return names


def migrating(workflow: Workflow, sent: Path) -> AbstractContextManager[list[str]]:
    """The same, with the files that were `sent` besides: applied when the block ends, not at all when it raises."""
    places = places_of(workflow)
    found = found_migrations(places.migrations, sent)
    return migrations.applying(places.database, found, snapshots=places.snapshots, now=timezone.now())


def found_migrations(*folders: Path) -> list[Migration]:
    """Those of the folders, by name; of one name the last."""
    files = {file.name: file for folder in folders for file in folder.glob("*.sql")}
    try:
        return [Migration(name, files[name].read_text()) for name in sorted(files)]
    except UnicodeDecodeError as wrong:
        raise MigrationRefused(f"A file of db/migrations is no UTF-8 text: {wrong}. Nothing was applied.") from None


__all__ = ["Database", "apply_migrations", "database", "describe", "migrating", "open_database", "read"]
