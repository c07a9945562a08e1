"""The document as JSON Schema, made from the models that parse it."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from engine.document.workflow import WorkflowDocument


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `workflow.json`. What only this release refuses is valid here all the same."""
    made = WorkflowDocument.model_json_schema(schema_generator=_Generator)
    return {"$schema": GenerateJsonSchema.schema_dialect, "title": "Pulse workflow", **made}


def as_text() -> str:
    """As it lies in `docs/reference/workflow.schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


class _Generator(GenerateJsonSchema):
    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        """None in a model is a key that was left out; null in a document is refused."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        if "default" in schema and schema["default"] is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def dict_schema(self, schema: core_schema.DictSchema) -> dict[str, Any]:
        made = super().dict_schema(schema)
        return {**made, "additionalProperties": False} if "patternProperties" in made else made

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
