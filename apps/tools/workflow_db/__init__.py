"""The database of a workflow: one SQLite file that no step ever gets, reached through tools only (BEHAVIOUR 7).

For the platform's own code: `read` for a read-only query, `apply_migrations`.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone

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
    places = places_of(workflow)
    return migrations.apply(places.database, found_migrations(workflow), snapshots=places.snapshots, now=timezone.now())


def found_migrations(workflow: Workflow) -> list[Migration]:
    folder = places_of(workflow).migrations
    if not folder.is_dir():
        return []
    return [Migration(file.name, file.read_text()) for file in sorted(folder.glob("*.sql"))]


__all__ = ["Database", "apply_migrations", "database", "describe", "open_database", "read"]
