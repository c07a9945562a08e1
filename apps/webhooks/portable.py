"""The triggers of a workflow document. Keys, secrets and tokens are in no document."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from apps.accounts.models import User
from apps.webhooks import actions
from apps.webhooks.models import Trigger
from apps.workflows import bundle, documents
from apps.workflows.documents import Raw
from apps.workflows.errors import DocumentNotValid
from apps.workflows.models import Workflow
from engine.document import WorkflowDocument

SECTION = "triggers"


@contextmanager
def prepare(workflow: Workflow, sent: Path) -> Iterator[bool]:
    """Whether what triggers say that are there, and not in the document any more, still fits it."""
    document = sent / bundle.DOCUMENT
    yield not document.exists() or _fits(workflow, documents.read(document.read_bytes()))


def load(workflow: Workflow, document: WorkflowDocument, by: User, fits: object) -> None:
    """Register what the document has; a trigger that it no longer has is switched off and keeps its address.

    What such a one says may no longer fit the new document (its group is gone); then only its kind and name stay, so
    that it bars no later save and no import of an export.
    A new one gets no secret here, since nobody would be shown it: its page makes one.
    """
    for trigger in document.triggers:
        actions.make_trigger(workflow=workflow, document=trigger, by=by, imported=True)
    named = [trigger.name for trigger in document.triggers]
    left = Trigger.objects.filter(workflow=workflow).exclude(name__in=named)
    for trigger_left in left.filter(enabled=True):
        actions.set_enabled(trigger_left, enabled=False, by=by)
    if not fits:
        for trigger_left in left:
            actions.empty(trigger_left, by=by)


def _fits(workflow: Workflow, raw: Raw) -> bool:
    new = cast(list[dict[str, JsonValue]], raw.get("triggers") or [])
    left = Trigger.objects.filter(workflow=workflow).exclude(name__in=[one["name"] for one in new])
    if not left:
        return True
    both: list[JsonValue] = [*new, *({**one.definition, "enabled": False} for one in left)]
    try:
        documents.check(raw | {"triggers": both}, workflow.team)
    except DocumentNotValid:
        return False
    return True


def dump(workflow: Workflow) -> JsonValue:
    """The triggers in the order they were made, or None when there are none."""
    rows = Trigger.objects.filter(workflow=workflow).order_by("created_at", "pk")
    return [row.definition for row in rows] or None
