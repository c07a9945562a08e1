"""The tools of the workflow's database, and the one that reads receipts back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from apps.tools import receipts
from apps.tools.catalogue import tool
from apps.tools.errors import Code, ToolFailure
from apps.tools.work import Executor, Work
from apps.tools.workflow_db import reading, values, writing
from apps.tools.workflow_db.writing import Statement

VALUE: dict[str, Any] = {
    "anyOf": [
        {"type": ["string", "number", "integer", "boolean", "null"]},
        {
            "type": "object",
            "properties": {values.BYTES_KEY: {"type": "string"}},
            "required": [values.BYTES_KEY],
            "additionalProperties": False,
        },
    ]
}
PARAMS: dict[str, Any] = {
    "description": 'Values for ? as a list, or for :name as an object. Bytes: {"$base64": "..."}.',
    "anyOf": [
        {"type": "array", "items": VALUE},
        {"type": "object", "additionalProperties": VALUE},
    ],
}
SQL = {"type": "string", "minLength": 1, "description": "One statement of SQLite's SQL."}


@tool(
    "query_workflow_db",
    summary="Read the workflow's own database with one read-only statement, or describe or check it.",
    needs_db="read",
    schema={
        "type": "object",
        "properties": {
            "sql": SQL,
            "params": PARAMS,
            "action": {"enum": ["query", "describe", "integrity_check"], "description": "query when left out."},
            "max_rows": {"type": "integer", "minimum": 1, "maximum": reading.MAX_ROWS},
            "offset": {"type": "integer", "minimum": 0},
        },
        "additionalProperties": False,
    },
)
class QueryWorkflowDb:
    def __init__(self, work: Work) -> None:
        self._database = work.database

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        action = arguments.get("action", "query")
        if action == "query":
            if "sql" not in arguments:
                raise ToolFailure(Code.ARGUMENTS_REJECTED, "sql is missing.", "Or use action=describe.")
            return reading.query(
                self._database,
                arguments["sql"],
                arguments.get("params"),
                max_rows=int(arguments.get("max_rows", reading.DEFAULT_ROWS)),
                offset=int(arguments.get("offset", 0)),
            )
        if set(arguments) != {"action"}:
            raise ToolFailure(Code.ARGUMENTS_REJECTED, f"action={action} takes no other argument.")
        if action == "describe":
            return reading.describe(self._database)
        return reading.integrity_check(self._database)


@tool(
    "mutate_workflow_db",
    summary="INSERT, UPDATE or DELETE in the workflow's own database: all of a call's statements, or none.",
    mutates=True,
    needs_db="read-write",
    schema={
        "type": "object",
        "properties": {
            "sql": SQL,
            "params": PARAMS,
            "param_sets": {"type": "array", "minItems": 1, "maxItems": writing.MAX_PARAM_SETS, "items": PARAMS},
            "statements": {
                "type": "array",
                "minItems": 1,
                "maxItems": writing.MAX_STATEMENTS,
                "items": {
                    "type": "object",
                    "properties": {"sql": SQL, "params": PARAMS},
                    "required": ["sql"],
                    "additionalProperties": False,
                },
            },
        },
        "additionalProperties": False,
    },
)
class MutateWorkflowDb:
    def __init__(self, work: Work) -> None:
        self._database = work.database
        self._mark = work.mark
        self._is_live = work.is_live

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        return writing.mutate(self._database, _statements(arguments), self._mark, is_live=self._is_live)


@tool(
    "read_receipt",
    summary="What became of a mutation: not_sent, refused, applied or unknown.",
    needs_db="none",
    schema={
        "type": "object",
        "properties": {"call_id": {"type": "string", "format": "uuid", "minLength": 36, "maxLength": 36}},
        "required": ["call_id"],
        "additionalProperties": False,
    },
)
class ReadReceipt:
    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        try:
            call_id = UUID(arguments["call_id"])
        except ValueError:
            raise ToolFailure(Code.ARGUMENTS_REJECTED, "call_id: is no UUID.") from None
        receipt = receipts.read(self._work, call_id)
        if receipt is None:
            raise ToolFailure(Code.NOT_FOUND, "That call was made by another session.", "Nothing of it is shown here.")
        return receipt


def _statements(arguments: Mapping[str, Any]) -> list[Statement]:
    if sum(name in arguments for name in ("sql", "statements")) != 1 or len(arguments) > 2:
        raise ToolFailure(Code.ARGUMENTS_REJECTED, *_FORMS)
    if "statements" in arguments:
        if len(arguments) != 1:
            raise ToolFailure(Code.ARGUMENTS_REJECTED, *_FORMS)
        return [Statement(each["sql"], [each.get("params")]) for each in arguments["statements"]]
    if "param_sets" in arguments:
        return [Statement(arguments["sql"], arguments["param_sets"], many=True)]
    return [Statement(arguments["sql"], [arguments.get("params")])]


_FORMS = (
    "Give sql with params, or sql with param_sets, or statements. Nothing was done.",
    "statements is a list of {sql, params}; param_sets runs one sql once for each of its sets.",
)
# For the type checker, which does not look at what decorates a class.
_made: tuple[type[Executor], ...] = (QueryWorkflowDb, MutateWorkflowDb, ReadReceipt)
