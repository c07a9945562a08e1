"""What a workflow brings for its own database: the files of db/migrations, applied when it is imported."""

from __future__ import annotations

from pydantic import JsonValue

from apps.accounts.errors import Field, Refused
from apps.accounts.models import User
from apps.tools import catalogue, workflow_db
from apps.workflows.models import Workflow
from engine.document import WorkflowDocument

SECTION = "db/migrations"


def check(document: WorkflowDocument) -> None:
    """Every tool that a step names exists and can work with the access the step has."""
    fields = [
        Field(f"$.plan.steps[{index}].tools[{place}]", why)
        for index, step in enumerate(document.plan.steps)
        for place, name in enumerate(step.tools)
        if (why := _why_not(name, step.access.db))
    ]
    if fields:
        first = fields[0]
        raise Refused(
            f"{first.path}: {first.message} Nothing was imported.", code="tool_not_granted", status=422, fields=fields
        )


def load(workflow: Workflow, _document: WorkflowDocument, _by: User) -> None:
    """Apply what was not applied yet, in one transaction of the workflow's database. Raises MigrationRefused."""
    workflow_db.apply_migrations(workflow)


def dump(_workflow: Workflow) -> JsonValue:
    """Nothing: the files travel as files."""
    return None


def _why_not(name: str, db_access: str) -> str:
    definition = catalogue.find(name)
    if definition is None:
        return f"There is no tool named {name}."
    if not catalogue.grants(definition, db_access):
        return f"{name} needs access.db to be {definition.needs_db}; it is {db_access}."
    return ""
