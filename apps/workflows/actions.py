"""Every write to workflows. What is saved is live at once; a save that does not hold changes nothing.

Each action checks the whole document as it would be, so that no part can break another: a plan that uses a secret the
workflow may not use, a group with a value for a variable that is gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from django.db import transaction
from pydantic import JsonValue

from apps.accounts import access, audit
from apps.accounts.errors import Forbidden, Refused
from apps.accounts.models import Team, User
from apps.workflows import documents, places, saving, secret_rules, vault
from apps.workflows.documents import Raw
from apps.workflows.errors import GroupUnknown, SecretRefused, VariableRefused
from apps.workflows.importing import import_workflow
from apps.workflows.models import Secret, Workflow
from engine import states
from engine.digests import code_tree
from engine.document import WorkflowDocument
from engine.graph import top_level_packages
from engine.ids import uuid7

__all__ = [
    "SavedSecret",
    "allow_secrets",
    "delete_group",
    "delete_secret",
    "delete_variable",
    "delete_workflow",
    "describe",
    "import_workflow",
    "save_plan",
    "set_group",
    "set_secret",
    "set_settings",
    "set_variable",
    "transfer",
]


@dataclass(frozen=True)
class SavedSecret:
    """A secret that was saved; `warning` says what is odd about its value, or is empty."""

    secret: Secret
    warning: str


def save_plan(workflow: Workflow, plan: Mapping[str, JsonValue], *, by: User | None) -> int:
    """Save the plan as the next revision and make it live; the number. The same plan again makes no revision."""

    def packages() -> Collection[str]:
        return top_level_packages(code_tree(places.places_of(workflow).code).files)

    def write(raw: Raw, _document: WorkflowDocument) -> int:
        before = workflow.revision
        number = saving.write_plan(workflow, raw["plan"], by)
        if number != before:
            audit.record("plan.saved", workflow, team=workflow.team, by=by, data={"revision": number})
        return number

    return saving.checked(
        workflow, lambda: documents.with_sections(workflow) | {"plan": dict(plan)}, write, packages=packages
    )


def set_variable(workflow: Workflow, *, name: str, value: JsonValue, description: str = "", by: User | None) -> None:
    """Make or change a variable's default; runs that have started keep the values they pinned."""

    def change() -> Raw:
        raw = documents.of_workflow(workflow)
        _put(raw, "variables", {"name": name, "value": value, "description": description})
        return raw

    saving.checked(workflow, change, _lists(workflow, "variable.set", {"name": name}, by))


def delete_variable(workflow: Workflow, *, name: str, by: User | None) -> None:
    """Take a variable away, and each group's value for it. What names it elsewhere (a trigger) makes this refused."""

    def change() -> Raw:
        raw = documents.with_sections(workflow)
        if not _drop(raw, "variables", name):
            raise VariableRefused(f"{workflow.slug} has no variable {name}. Nothing was changed.", status=404)
        for group in _objects(raw, "groups"):
            cast(dict[str, JsonValue], group["values"]).pop(name, None)
        return raw

    saving.checked(workflow, change, _lists(workflow, "variable.deleted", {"name": name}, by))


def set_group(
    workflow: Workflow, *, name: str, values: Mapping[str, JsonValue], enabled: bool = True, by: User | None
) -> None:
    """Make or change a group: `values` replaces all of its values; a variable left out keeps its default."""

    def change() -> Raw:
        raw = documents.with_sections(workflow)
        _put(raw, "groups", {"name": name, "values": dict(values), "enabled": enabled})
        return raw

    saving.checked(workflow, change, _lists(workflow, "group.set", {"name": name, "enabled": enabled}, by))


def delete_group(workflow: Workflow, *, name: str, by: User | None) -> None:
    """Take a group away; its runs keep their values. What names it elsewhere (a trigger) makes this refused."""

    def change() -> Raw:
        raw = documents.with_sections(workflow)
        if not _drop(raw, "groups", name):
            raise GroupUnknown(f"{workflow.slug} has no group {name}. Nothing was changed.", status=404)
        return raw

    saving.checked(workflow, change, _lists(workflow, "group.deleted", {"name": name}, by))


def set_settings(workflow: Workflow, settings: Mapping[str, JsonValue], *, by: User | None) -> None:
    """Replace the workflow's settings."""
    wanted = dict(settings)
    _set_fields(workflow, {"settings": wanted}, {"settings": wanted}, "settings.set", {"settings": wanted}, by)


def describe(workflow: Workflow, *, title: str, objective: str, by: User | None) -> None:
    """Change what people read about the workflow."""
    texts = {"title": title, "objective": objective}
    _set_fields(workflow, texts, texts, "workflow.described", {"title": title}, by)


def allow_secrets(workflow: Workflow, names: Iterable[str], *, by: User | None) -> None:
    """Set which of the team's secrets the workflow may use; a name that a step uses cannot be left out."""
    wanted = list(dict.fromkeys(names))
    changes: Raw = {"secrets": cast(JsonValue, wanted)}
    _set_fields(workflow, changes, {"secret_names": wanted}, "secrets.allowed", {"names": wanted}, by)


@transaction.atomic
def set_secret(team: Team, *, name: str, value: str, by: User | None) -> SavedSecret:
    """Save a value, encrypted, under a name of the team. Nothing shows it again; the next step start uses it."""
    secret_rules.check_name(name)
    warning = secret_rules.check_value(value)
    row = Secret.objects.select_for_update(no_key=True).filter(team=team, name=name).first() or Secret(
        id=uuid7(), team=team, name=name
    )
    sealed = vault.encrypt(vault.Purpose.SECRET, row.pk, value.encode())
    row.ciphertext, row.key_id, row.note, row.updated_by = sealed.ciphertext, sealed.key_id, warning, by
    row.save()
    audit.record("secret.set", row, team=team, by=by, data={"name": name})
    return SavedSecret(row, warning)


@transaction.atomic
def delete_secret(team: Team, *, name: str, by: User | None) -> None:
    """Forget a value. Steps that need it fail before they start, and say so."""
    row = Secret.objects.filter(team=team, name=name).first()
    if row is None:
        raise SecretRefused(f"{team.name} has no secret {name}. Nothing was changed.", status=404)
    audit.record("secret.deleted", row, team=team, by=by, data={"name": name})
    row.delete()


@transaction.atomic
def transfer(workflow: Workflow, *, owner: User, by: User | None) -> None:
    """Make someone else the owner, whose rights every later run acts with."""
    if not access.may_own(owner, workflow.team):
        raise Forbidden(
            f"{owner.username} is no active editor or owner of {workflow.team.name}. The owner was not changed."
        )
    saving.lock(workflow)
    former, workflow.owner = workflow.owner, owner
    workflow.save(update_fields=["owner", "updated_at"])
    data = {"from": former.username, "to": owner.username}
    audit.record("workflow.transferred", workflow, team=workflow.team, by=by, data=data)


def delete_workflow(workflow: Workflow, *, by: User | None) -> None:
    """Take the workflow away with its rows, runs and files. Refused while a run of it has not ended."""
    root = places.places_of(workflow).root
    with transaction.atomic():
        saving.lock(workflow)
        unfinished = workflow.runs.exclude(status__in=states.TERMINAL).count()
        if unfinished:
            raise Refused(
                f"{workflow.slug} has {unfinished} unfinished runs. Nothing was deleted. Cancel them first.",
                code="runs_unfinished",
                status=409,
            )
        audit.record("workflow.deleted", workflow, team=workflow.team, by=by, data={"slug": workflow.slug})
        workflow.delete()
        transaction.on_commit(lambda: shutil.rmtree(root, ignore_errors=True))


def _lists(
    workflow: Workflow, action: str, data: Mapping[str, object], by: User | None
) -> Callable[[Raw, WorkflowDocument], None]:
    """Writes variables and groups as the document has them."""

    def write(_raw: Raw, document: WorkflowDocument) -> None:
        saving.write_lists(workflow, document)
        workflow.save(update_fields=["updated_at"])
        audit.record(action, workflow, team=workflow.team, by=by, data=data)

    return write


def _set_fields(
    workflow: Workflow,
    changes: Mapping[str, JsonValue],
    fields: Mapping[str, object],
    action: str,
    data: Mapping[str, object],
    by: User | None,
) -> None:
    """Checked as `changes` of the document, saved as `fields` of the row."""

    def write(_raw: Raw, _document: WorkflowDocument) -> None:
        for name, value in fields.items():
            setattr(workflow, name, value)
        workflow.save(update_fields=[*fields, "updated_at"])
        audit.record(action, workflow, team=workflow.team, by=by, data=data)

    saving.checked(workflow, lambda: documents.of_workflow(workflow) | dict(changes), write)


def _objects(raw: Raw, key: str) -> list[dict[str, JsonValue]]:
    return cast(list[dict[str, JsonValue]], raw[key])


def _put(raw: Raw, key: str, row: dict[str, JsonValue]) -> None:
    rows = _objects(raw, key)
    for index, old in enumerate(rows):
        if old["name"] == row["name"]:
            rows[index] = row
            return
    rows.append(row)


def _drop(raw: Raw, key: str, name: str) -> bool:
    rows = _objects(raw, key)
    kept = [row for row in rows if row["name"] != name]
    raw[key] = cast(JsonValue, kept)
    return len(kept) < len(rows)
