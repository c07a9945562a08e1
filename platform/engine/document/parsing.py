"""From what was sent to a document that is whole, or to the list of everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engine import json_values
from engine.document.steps import Plan
from engine.document.workflow import WorkflowDocument
from engine.problems import Problem, Refused, json_path

Model = TypeVar("Model", bound=BaseModel)


class DocumentRefused(Refused):
    """The document was refused; nothing of it was saved."""


def parse_workflow(raw: Mapping[str, Any]) -> WorkflowDocument:
    """Raises `DocumentRefused`."""
    return _parse(WorkflowDocument, raw)


def parse_plan(raw: Mapping[str, Any]) -> Plan:
    """Raises `DocumentRefused`."""
    return _parse(Plan, raw)


def _parse(model: type[Model], raw: Mapping[str, Any]) -> Model:
    try:
        return model.model_validate_json(json_values.dump(raw))
    except json_values.NotJson as error:
        raise DocumentRefused([Problem("$", "not_json", f"This is no JSON document: {error}.")]) from None
    except ValidationError as error:
        raise DocumentRefused(
            _problem(raw, details) for details in error.errors(include_url=False, include_context=True)
        ) from None


def _problem(raw: Mapping[str, Any], details: ErrorDetails) -> Problem:
    path = json_path(_in_document(raw, details["loc"], details["type"]))
    if details["type"] == "extra_forbidden":
        return Problem(path, "unknown_key", "There is no such key here. Remove it, or mend its spelling.")
    return Problem(path, details["type"], f"{details['msg']}.")


def _in_document(raw: Any, location: Sequence[str | int], kind: str) -> list[str | int]:
    """pydantic names the member of a union it tried; such names are no place in the document."""
    found: list[str | int] = []
    here = raw
    for index, part in enumerate(location):
        last = index == len(location) - 1
        inside = isinstance(part, int) or (isinstance(here, Mapping) and part in here)
        if inside or (last and kind == "missing"):
            found.append(part)
            here = _step_into(here, part)
    return found


def _step_into(here: Any, part: str | int) -> Any:
    try:
        return here[part]
    except (LookupError, TypeError):
        return None
