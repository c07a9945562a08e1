"""What the pages of one workflow show, tab by tab."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from apps.accounts.models import Audit, User
from apps.dashboard import forms, highlight
from apps.runs import listing
from apps.runs.forms import RunFilter
from apps.runs.listing import RunBar
from apps.webhooks import reading as hooks
from apps.webhooks.deliveries_page import Row
from apps.webhooks.models import Delivery
from apps.workflows import graph_svg
from apps.workflows.importing import CODE_CHANGED
from apps.workflows.models import Group, PlanRevision, Secret, Variable, Workflow
from apps.workflows.places import places_of
from engine.json_values import indented, readable
from engine.sandbox.errors import FileRefused
from engine.sandbox.files import Beneath
from engine.sandbox.tree import Kind

LISTED = 60
BARS_EACH = 16
FILES = 400
FILE_BYTES = 512 * 1024
REVISIONS = 50


@dataclass(frozen=True)
class Listed:
    """One workflow in the list, with its last runs."""

    workflow: Workflow
    bars: list[RunBar]
    last: listing.RunRow | None


@dataclass(frozen=True)
class CodeFile:
    path: str
    lines: tuple[highlight.Line, ...]
    refusal: str = ""


@dataclass(frozen=True)
class SecretLine:
    """A secret that the workflow may use: whether it has a value, never which."""

    name: str
    secret: Secret | None


@dataclass(frozen=True)
class Failed:
    """A form of the tab that was refused just now: variable, group or secret, and what was typed in it."""

    kind: str
    typed: Mapping[str, str]


@dataclass(frozen=True)
class ValueRow:
    """A variable in a group's form: its value as it is typed, empty when the default holds."""

    name: str
    text: str
    default: str


@dataclass(frozen=True)
class GroupForm:
    group: Group
    enabled: bool
    is_open: bool
    rows: tuple[ValueRow, ...]


def workflows(user: User, team: str = "") -> list[Listed]:
    found = Workflow.objects.for_user(user).by_title()
    if team:
        found = found.filter(team__slug=team)
    return [_listed(workflow) for workflow in found[:LISTED]]


def overview(workflow: Workflow, wanted: RunFilter) -> dict[str, Any]:
    bars = listing.bars(listing.newest(workflow))
    shown = listing.of_workflow(workflow, wanted)
    return {
        "shown": shown,
        "wanted": wanted,
        "bars": bars,
        "picture": graph_svg.of_revision(workflow.pk, workflow.revision),
    }


def plan(workflow: Workflow) -> dict[str, Any]:
    saved = PlanRevision.objects.filter(workflow=workflow, number=workflow.revision).first()
    steps = saved.plan.get("steps", []) if saved else []
    return {
        "steps": steps,
        "revision": saved,
        "raw": indented(saved.plan if saved else {}),
    }


def code(workflow: Workflow, path: str) -> dict[str, Any]:
    """The files of the code tree, and the one asked for (else the first entry point)."""
    try:
        with Beneath(places_of(workflow).code) as folder:
            found = [entry.relative for entry in folder.listing(most=FILES * 10) if entry.kind is Kind.FILE][:FILES]
            files = [readable(name) for name in found]  # a name that is no text is shown; nothing opens under it
            return {"files": files, "file": _file(folder, path or _first(files))}
    except FileRefused as refused:
        return {"files": [], "file": CodeFile("", (), readable(str(refused)))}


def variables(workflow: Workflow, failed: Failed | None = None) -> dict[str, Any]:
    """`failed` is the form that was refused just now: it is shown open, with what was typed in it."""
    set_here = {
        secret.name: secret for secret in Secret.objects.filter(team=workflow.team).select_related("updated_by")
    }
    known, groups = list(workflow.variables.all()), list(workflow.groups.all())
    return {
        "variables": known,
        "groups": groups,
        "group_forms": [_group_form(group, known, failed) for group in groups],
        "secrets": [SecretLine(name, set_here.get(name)) for name in workflow.secret_names],
        "failed": {failed.kind: failed.typed} if failed else {},
    }


def triggers(workflow: Workflow) -> dict[str, Any]:
    return {"triggers": hooks.triggers_of(workflow, now=timezone.now())}


def deliveries(workflow: Workflow) -> dict[str, Any]:
    newest = Delivery.objects.filter(workflow=workflow).with_names().newest_first()[:50]
    return {"rows": [Row(delivery) for delivery in newest]}


def history(workflow: Workflow, number: int) -> dict[str, Any]:
    """The saved plans, what one of them (0: the live one) changed against the one before it, and changes of code."""
    revisions = list(workflow.revisions.select_related("saved_by").defer("plan").order_by("-number")[:REVISIONS])
    chosen = number or workflow.revision
    pair = {row.number: row.plan for row in workflow.revisions.filter(number__in=(chosen - 1, chosen))}
    changes = Audit.objects.filter(object_kind="workflow", object_id=str(workflow.pk), action=CODE_CHANGED)
    return {
        "revisions": revisions,
        "chosen": chosen,
        "diff": _diff(pair.get(chosen - 1), pair.get(chosen)),
        "code_changes": list(changes.select_related("actor").order_by("-at")[:REVISIONS]),
    }


def settings(workflow: Workflow) -> dict[str, Any]:
    audit = Audit.objects.filter(object_kind="workflow", object_id=str(workflow.pk)).select_related("actor")
    said = json.dumps(workflow.settings, indent=2) if workflow.settings else ""
    return {"settings": said, "audit": list(audit.order_by("-at")[:30])}


def _group_form(group: Group, known: list[Variable], failed: Failed | None) -> GroupForm:
    refused = failed is not None and failed.kind == "group" and failed.typed.get("name") == group.name
    if failed and refused:
        values = {one.name: failed.typed.get(f"{forms.VALUE}{one.name}", "") for one in known}
        enabled = "enabled" in failed.typed
    else:
        values, enabled = {name: forms.typed(value) for name, value in group.values.items()}, group.enabled
    rows = tuple(ValueRow(one.name, values.get(one.name, ""), forms.typed(one.value)) for one in known)
    return GroupForm(group, enabled, refused, rows)


def _listed(workflow: Workflow) -> Listed:
    rows = listing.newest(workflow, BARS_EACH)
    return Listed(workflow, listing.bars(rows), rows[0] if rows else None)


def _first(files: list[str]) -> str:
    entry_points = [name for name in files if name.endswith("/main.py")]
    return next(iter(entry_points or files), "")


def _file(folder: Beneath, path: str) -> CodeFile:
    if not path:
        return CodeFile("", ())
    try:
        text = folder.read(path, FILE_BYTES).decode("utf-8", "replace")
    except FileRefused as refused:
        return CodeFile(path, (), str(refused))
    return CodeFile(path, highlight.lines(text, python=path.endswith(".py")))


def _diff(before: Any, after: Any) -> list[tuple[str, str]]:
    """(kind, line) of a unified diff: added, gone, place, same."""
    old, new = (indented(plan).splitlines() if plan else [] for plan in (before, after))
    kinds = {"+": "added", "-": "gone", "@": "place"}
    lines = list(difflib.unified_diff(old, new, lineterm="", n=3))[2:]
    return [(kinds.get(line[:1], "same"), line) for line in lines]
