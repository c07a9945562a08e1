"""What a workflow brings for its own database: the files of db/migrations, applied when it is imported."""

from __future__ import annotations

from pydantic import JsonValue

from apps.accounts.models import User
from apps.tools import workflow_db
from apps.workflows.models import Workflow
from engine.document import WorkflowDocument

SECTION = "db/migrations"


def load(workflow: Workflow, _document: WorkflowDocument, _by: User) -> None:
    """Apply what was not applied yet, in one transaction of the workflow's database. Raises MigrationRefused."""
    workflow_db.apply_migrations(workflow)


def dump(_workflow: Workflow) -> JsonValue:
    """Nothing: the files travel as files."""
    return None
