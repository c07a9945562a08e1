"""From what was sent to a document that is whole, or to the list of everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engine import json_values
from engine.document import meaning, release
from engine.document.release import Place, Unsupported
from engine.document.steps import Plan
from engine.document.workflow import WorkflowDocument
from engine.problems import Problem, Refused, json_path

Model = TypeVar("Model", bound=BaseModel)

WORDS = {
    "extra_forbidden": ("unknown_key", "There is no such key here. Remove it, or mend its spelling."),
    "missing": ("missing_key", "This key is missing."),
    "union_tag_not_found": ("missing_key", "This key is missing."),
    "null": ("null", "null stands where a value is needed. Leave the key out, or give a value."),
}


class DocumentRefused(Refused):
    """The document was refused; nothing of it was saved."""


def parse_workflow(raw: Mapping[str, Any], *, code_packages: Collection[str] = ()) -> WorkflowDocument:
    """A whole document, as imported or saved. Raises `DocumentRefused` with everything that is wrong.

    code_packages: `graph.top_level_packages` of the code tree.
    """
    parsed, problems = _shape(WorkflowDocument, _text(raw), release.in_workflow(raw))
    if parsed is not None:
        problems += meaning.workflow_problems(parsed, code_packages)
    if parsed is None or problems:
        raise DocumentRefused(problems)
    return parsed


def parse_plan(raw: Mapping[str, Any]) -> Plan:
    """A plan by itself, as it is loaded again: which secrets it may name is judged when it is saved.

    Raises `DocumentRefused`.
    """
    parsed, problems = _shape(Plan, _text(raw), release.in_plan(raw))
    if parsed is not None:
        problems += meaning.plan_problems(parsed)
    if parsed is None or problems:
        raise DocumentRefused(problems)
    return parsed


def _text(raw: Mapping[str, Any]) -> bytes:
    try:
        return json_values.encode(raw)
    except json_values.NotJson as error:
        raise DocumentRefused([Problem("$", "not_json", f"This is no JSON document: {error}.")]) from None


def _shape(model: type[Model], text: bytes, unsupported: Iterable[Unsupported]) -> tuple[Model | None, list[Problem]]:
    """The parsed model when its shape holds, and what is wrong so far. Unsupported parts are not judged further."""
    later = list(unsupported)
    problems = [one.problem() for one in later]
    try:
        return model.model_validate_json(text), problems
    except ValidationError as error:
        raw = json_values.load(text)
        found = [(_place(raw, details), details) for details in error.errors(include_url=False)]
        problems += [_problem(place, details) for place, details in found if not _follows(place, details, found, later)]
        return None, problems


def _follows(
    place: Place,
    details: ErrorDetails,
    found: Sequence[tuple[Place, ErrorDetails]],
    later: Sequence[Unsupported],
) -> bool:
    """Whether it says nothing of its own: it lies in an unsupported part, or a list is short of its faulty entries."""
    if any(place[: len(one.covers)] == one.covers for one in later):
        return True
    return details["type"] == "too_short" and any(
        len(other) > len(place) and other[: len(place)] == place for other, _ in found
    )


def _problem(place: Place, details: ErrorDetails) -> Problem:
    code, message = WORDS.get(details["type"], ("bad_value", ""))
    if details["type"] == "union_tag_invalid":
        message = f"A kind is one of {details['ctx']['expected_tags']}."
    if not message:
        code = "wrong_type" if details["type"].endswith("_type") else code
        message = details["msg"].removeprefix("Value error, ").replace("Tuple", "List").rstrip(".") + "."
    return Problem(json_path(place), code, message[:1].upper() + message[1:])


def _place(raw: Any, details: ErrorDetails) -> Place:
    """pydantic names the member of a union that it tried; such names are no place in the document."""
    found: list[str | int] = []
    here = raw
    location: Sequence[str | int] = details["loc"]
    for index, part in enumerate(location):
        missing = details["type"] == "missing" and index == len(location) - 1
        if missing or isinstance(part, int) or (isinstance(here, Mapping) and part in here):
            found.append(part)
            here = _step_into(here, part)
    if details["type"].startswith("union_tag"):
        found.append("kind")
    return tuple(found)


def _step_into(here: Any, part: str | int) -> Any:
    try:
        return here[part]
    except (LookupError, TypeError):
        return None
