"""The workflow document between its rows and its JSON form (BEHAVIOUR 2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from pydantic import JsonValue

from apps.accounts.errors import Field
from apps.accounts.models import Team
from apps.workflows import portable, vault
from apps.workflows.errors import DocumentNotValid
from apps.workflows.models import PlanRevision, Secret, Workflow
from engine import document, json_values

MAX_DOCUMENT_BYTES = 4 * 1024 * 1024
Raw = dict[str, JsonValue]


def read(data: bytes) -> Raw:
    """The JSON object in `data`, parsed strictly."""
    if len(data) > MAX_DOCUMENT_BYTES:
        raise DocumentNotValid(f"workflow.json is larger than {MAX_DOCUMENT_BYTES} bytes. Nothing was saved.")
    try:
        raw = json_values.load(data)
    except json_values.NotJson as wrong:
        raise DocumentNotValid(f"workflow.json is not JSON: {wrong}. Nothing was saved.", code="not_json") from None
    if not isinstance(raw, dict):
        raise DocumentNotValid("workflow.json must hold one object. Nothing was saved.")
    return raw


def check(raw: Mapping[str, JsonValue], team: Team, code_packages: Collection[str] = ()) -> document.WorkflowDocument:
    """The parsed document, when all of it holds: shape, graph, and no value that is a stored secret of the team.

    code_packages: names of the code tree's own packages, which no step may have.
    """
    try:
        parsed = document.parse_workflow(raw, code_packages=code_packages)
    except document.DocumentRefused as wrong:
        fields = [Field(problem.path, problem.message) for problem in wrong.problems]
        first = wrong.problems[0]
        more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
        code = first.code if first.code == "not_supported_yet" else DocumentNotValid.code
        raise DocumentNotValid(
            f"{first.path}: {first.message.rstrip('.')}{more}. Nothing was saved.", code=code, fields=fields
        ) from wrong
    _refuse_nul(raw)
    _refuse_secrets(raw, team)
    return parsed


def of_workflow(workflow: Workflow) -> Raw:
    """The document as its rows have it now, without the parts of other apps."""
    revision = PlanRevision.objects.get(workflow=workflow, number=workflow.revision)
    raw: Raw = {
        "schema_version": workflow.schema_version,
        "code_layout_version": workflow.code_layout_version,
        "contract_version": workflow.contract_version,
        "slug": workflow.slug,
        "title": workflow.title,
        "objective": workflow.objective,
        "variables": [
            {"name": row.name, "value": row.value, "description": row.description} for row in workflow.variables.all()
        ],
        "groups": [{"name": row.name, "values": row.values, "enabled": row.enabled} for row in workflow.groups.all()],
        "secrets": list(workflow.secret_names),
        "plan": revision.plan,
        "settings": workflow.settings,
    }
    return raw


def with_sections(workflow: Workflow) -> Raw:
    """The whole document as an export has it: names of secrets, never a value; no key of a trigger."""
    raw = of_workflow(workflow)
    for section in portable.sections():
        part = section.dump(workflow)
        if part is not None:
            raw[section.SECTION] = part
    return raw


def _refuse_nul(raw: Mapping[str, JsonValue]) -> None:
    if not json_values.holds_nul(raw):
        return
    path = next((path for path, text in strings(raw) if "\0" in text), "a key")
    raise DocumentNotValid(
        f"{path} holds a NUL character. Nothing was saved. Take it out.",
        fields=[Field(path, "holds a NUL character")],
    )


def _refuse_secrets(raw: Mapping[str, JsonValue], team: Team) -> None:
    """No string of the document may be the value of a stored secret: it would be shown, exported and logged."""
    values = {
        vault.decrypt(vault.Purpose.SECRET, row.pk, row.ciphertext, row.key_id).decode()
        for row in Secret.objects.filter(team=team)
    }
    if not values:
        return
    for path, text in strings(raw):
        if text in values:
            raise DocumentNotValid(
                f"{path} holds the value of a stored secret. Nothing was saved. Name the secret in the step's"
                " `secrets` and read it from the environment as SECRET_<NAME>.",
                code="secret_in_document",
                fields=[Field(path, "is the value of a stored secret")],
            )


def strings(value: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Every string below, with its JSON path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in cast(Mapping[str, Any], value).items():
            yield from strings(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from strings(inner, f"{path}[{index}]")
