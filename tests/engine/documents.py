"""Small documents for tests: plain functions that return what a person would have written."""

from __future__ import annotations

from typing import Any

import pytest

from engine import document
from engine.document import DocumentRefused, Plan


def scripted(step_id: str, *dependencies: str | dict[str, Any], **keys: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"id": step_id, "kind": "scripted", **keys}
    if dependencies:
        made["context_dependencies"] = list(dependencies)
    return made


def branch(step_id: str, *routes: tuple[str, str], **keys: Any) -> dict[str, Any]:
    return {
        "id": step_id,
        "kind": "branch",
        "question": "Which way?",
        "routes": [{"route_id": route_id, "next_step_id": target} for route_id, target in routes],
        **keys,
    }


def plan(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"steps": list(steps)}


def workflow(*steps: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "code_layout_version": 1,
        "contract_version": "1.0.44",
        "slug": "pr-review",
        "title": "Reviews",
        "plan": plan(*(steps or (scripted("gate"),))),
        **keys,
    }


def parsed_plan(*steps: dict[str, Any]) -> Plan:
    return document.parse_plan(plan(*steps))


def refusals(raw: dict[str, Any], **keys: Any) -> dict[str, str]:
    """The code at each path of the refusal of a whole document."""
    with pytest.raises(DocumentRefused) as caught:
        document.parse_workflow(raw, **keys)
    return {problem.path: problem.code for problem in caught.value.problems}
