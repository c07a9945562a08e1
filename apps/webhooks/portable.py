"""The triggers of a workflow document. Keys, secrets and tokens are in no document."""

from __future__ import annotations

from pydantic import JsonValue

from apps.accounts.models import User
from apps.webhooks import actions
from apps.webhooks.models import Trigger
from apps.workflows.models import Workflow
from engine.document import WorkflowDocument

SECTION = "triggers"


def load(workflow: Workflow, document: WorkflowDocument, by: User) -> None:
    """Register what the document has; a trigger that it no longer has is switched off and keeps its address.

    A new one gets no secret here, since nobody would be shown it: its page makes one.
    """
    for trigger in document.triggers:
        actions.make_trigger(workflow=workflow, document=trigger, by=by, proven=False)
    named = [trigger.name for trigger in document.triggers]
    for left in Trigger.objects.filter(workflow=workflow, enabled=True).exclude(name__in=named):
        actions.set_enabled(left, enabled=False, by=by)


def dump(workflow: Workflow) -> JsonValue:
    """The triggers in the order they were made, or None when there are none."""
    rows = Trigger.objects.filter(workflow=workflow).order_by("created_at", "pk")
    return [row.definition for row in rows] or None
