"""What a workflow brings for its own database: the files of db/migrations, applied when it is imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue

from apps.accounts.models import User
from apps.tools import workflow_db
from apps.workflows.models import Workflow
from engine.document import WorkflowDocument

SECTION = "db/migrations"


@contextmanager
def prepare(workflow: Workflow, sent: Path) -> Iterator[None]:
    """Apply what was not applied yet, in one transaction of the workflow's database. Raises MigrationRefused."""
    with workflow_db.migrating(workflow, sent / SECTION):
        yield


def load(_workflow: Workflow, _document: WorkflowDocument, _by: User, _prepared: object) -> None:
    """No row of the platform's database says anything of it."""


def dump(_workflow: Workflow) -> JsonValue:
    """Nothing: the files travel as files."""
    return None
