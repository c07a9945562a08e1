"""The published JSON Schema says what the models parse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine import document
from engine.document import schema
from tests.engine.documents import branch, scripted, workflow
from tests.engine.test_document_shape import WHOLE

PUBLISHED = Path(__file__).parents[2] / "docs" / "reference" / "workflow.schema.json"
VALIDATOR = Draft202012Validator(document.json_schema())


def test_it_is_a_schema():
    Draft202012Validator.check_schema(document.json_schema())


def test_the_published_one_is_made_from_the_models():
    told = "PYTHONPATH=platform python -c \"from engine.document.schema import as_text; print(as_text(), end='')\""
    assert PUBLISHED.read_text() == schema.as_text(), f"Write it anew: {told} > docs/reference/workflow.schema.json"


@pytest.mark.parametrize("raw", [WHOLE, workflow(), workflow(branch("b", ("x", "end"), ("y", "end")))])
def test_it_takes_what_the_models_take(raw: dict[str, Any]):
    VALIDATOR.validate(raw)


@pytest.mark.parametrize(
    "raw",
    [
        workflow(colour="red"),
        workflow(scripted("gate", tolls=[])),
        workflow(scripted("gate", next_step_id=None)),
        workflow(scripted("gate", limits={"cpu_s": None})),
        workflow(scripted("Gate")),
        workflow(scripted("gate", script_parameters={"a b": {"type": "string", "description": "A."}})),
        workflow({"id": "a", "kind": "shell"}),
    ],
)
def test_it_refuses_what_the_models_refuse(raw: dict[str, Any]):
    assert not VALIDATOR.is_valid(raw)


def test_it_has_every_key_of_the_document():
    keys = (
        "schema_version code_layout_version contract_version slug title objective variables groups secrets plan"
        " triggers schedules settings"
    )
    assert set(document.json_schema()["properties"]) == set(keys.split())


def test_it_has_every_key_of_a_step():
    keys = (
        "id kind title description context_dependencies context_output script_parameters validation tools secrets"
        " requires capabilities access network limits retry idempotent lock_code next_step_id"
    )
    assert set(document.json_schema()["$defs"]["ScriptedStep"]["properties"]) == set(keys.split())
