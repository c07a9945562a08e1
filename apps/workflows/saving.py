"""The rows that a document becomes, of a document that was checked. `checked` is how a part of one is saved."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar, cast

from django.db import transaction
from django.db.models import Max
from pydantic import JsonValue

from apps.accounts.models import User
from apps.workflows import documents, portable
from apps.workflows.documents import Raw
from apps.workflows.errors import SavedMeanwhile
from apps.workflows.models import Group, PlanRevision, Variable, Workflow
from engine import json_values
from engine.document import WorkflowDocument

TRIES = 5
Saved = TypeVar("Saved")


def checked(
    workflow: Workflow,
    change: Callable[[], Raw],
    write: Callable[[Raw, WorkflowDocument], Saved],
    *,
    packages: Callable[[], Collection[str]] = tuple,
) -> Saved:
    """Save a part of a workflow, when the whole document holds as it would be then: what `write` returns.

    `change` reads the document and changes it, `write` is called with it in the transaction, under the row's lock. The
    check comes before both: it takes as long as what a team wrote is large, and the lock may be everybody's. So it is
    done again when others saved meanwhile.
    """
    for _ in range(TRIES):
        workflow.refresh_from_db()
        seen = _version(workflow)
        raw = change()
        document = documents.check(raw, workflow.team, packages())
        with transaction.atomic():
            lock(workflow)
            if _version(workflow) == seen:
                return write(raw, document)
    raise SavedMeanwhile(f"Others are saving {workflow.slug} again and again. Nothing was changed. Try again.")


def lock(workflow: Workflow) -> None:
    """Take the row's lock and read what others saved meanwhile."""
    Workflow.objects.select_for_update(no_key=True).get(pk=workflow.pk)
    workflow.refresh_from_db()


def _version(workflow: Workflow) -> tuple[object, ...]:
    """Another one after each save of any part of the document."""
    return (workflow.revision, workflow.updated_at, *(section.dump(workflow) for section in portable.sections()))


def write_document(workflow: Workflow, raw: Raw, document: WorkflowDocument, by: User) -> Workflow:
    """Save every part of the document that this app owns; the row itself may be new."""
    workflow.schema_version = document.schema_version
    workflow.code_layout_version = document.code_layout_version
    workflow.contract_version = document.contract_version
    workflow.title = document.title
    workflow.objective = document.objective
    workflow.secret_names = list(document.secrets)
    workflow.settings = cast(Mapping[str, JsonValue], raw.get("settings") or {})
    workflow.save()
    write_lists(workflow, document)
    write_plan(workflow, raw["plan"], by)
    return workflow


def write_plan(workflow: Workflow, plan: JsonValue, by: User | None) -> int:
    """Add a revision and make it live; the same plan again adds none. The live revision's number."""
    digest = hashlib.sha256(json_values.dump(plan)).hexdigest()
    locked = Workflow.objects.select_for_update(no_key=True).get(pk=workflow.pk)
    live = PlanRevision.objects.filter(workflow=locked, number=locked.revision).first()
    if live is None or live.digest != digest:
        last = PlanRevision.objects.filter(workflow=locked).aggregate(last=Max("number"))["last"] or 0
        live = PlanRevision.objects.create(workflow=locked, number=last + 1, plan=plan, digest=digest, saved_by=by)
        locked.revision = live.number
        locked.save(update_fields=["revision", "updated_at"])
    workflow.revision = locked.revision
    return live.number


def write_lists(workflow: Workflow, document: WorkflowDocument) -> None:
    """Replace variables and groups by the document's, in its order."""
    workflow.variables.all().delete()
    Variable.objects.bulk_create(
        Variable(workflow=workflow, name=row.name, value=row.value, description=row.description, position=position)
        for position, row in enumerate(document.variables)
    )
    workflow.groups.all().delete()
    Group.objects.bulk_create(
        Group(workflow=workflow, name=row.name, values=row.values, enabled=row.enabled, position=position)
        for position, row in enumerate(document.groups)
    )
