"""The triggers of a workflow document. Keys, secrets and tokens are in no document."""

from __future__ import annotations

from pydantic import JsonValue

from apps.accounts.errors import Field
from apps.accounts.models import User
from apps.webhooks import actions
from apps.webhooks.errors import TriggerRefused
from apps.webhooks.kinds import KINDS
from apps.webhooks.models import Trigger
from apps.workflows.models import Workflow
from engine.document import WorkflowDocument

SECTION = "triggers"


def check(document: WorkflowDocument) -> None:
    """Raises TriggerRefused for two triggers of one name, and for kinds that this release does not have."""
    seen: set[str] = set()
    for place, trigger in enumerate(document.triggers):
        if trigger.name in seen:
            raise TriggerRefused(
                f"Two triggers are called {trigger.name!r}. Nothing was saved. Give each its own name.",
                code="duplicate_name",
                fields=[Field(f"triggers[{place}].name", "taken by another trigger")],
            )
        if trigger.kind not in KINDS:
            raise TriggerRefused(
                f"Triggers of kind {trigger.kind} are not in this release. Nothing was saved.",
                code="not_supported_yet",
                fields=[Field(f"triggers[{place}].kind", "not_supported_yet")],
            )
        seen.add(trigger.name)


def load(workflow: Workflow, document: WorkflowDocument, by: User) -> None:
    """Register what the document has; a trigger that it no longer has is switched off and keeps its address."""
    for trigger in document.triggers:
        actions.make_trigger(workflow=workflow, document=trigger, by=by)
    named = [trigger.name for trigger in document.triggers]
    for left in Trigger.objects.filter(workflow=workflow, enabled=True).exclude(name__in=named):
        actions.set_enabled(left, enabled=False, by=by)


def dump(workflow: Workflow) -> JsonValue:
    """The triggers in the order they were made, or None when there are none."""
    rows = Trigger.objects.filter(workflow=workflow).order_by("created_at", "pk")
    return [row.definition for row in rows] or None
