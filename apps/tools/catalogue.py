"""Which tools there are. Definitions only: an executor is made for one call and dropped (BEHAVIOUR 6.1).

Each app names its tools in a `tools.py`, found when Django starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from apps.tools import quick_check
from engine.document.release import ACCESS

if TYPE_CHECKING:
    from apps.tools.work import Executor, Work

READ_RECEIPT = "read_receipt"


@dataclass(frozen=True)
class Tool:
    """A platform function. `make` gives the executor of one call, bound to the identity that the call acts with."""

    name: str
    summary: str
    schema: Mapping[str, Any]
    mutates: bool
    make: Callable[[Work], Executor]
    needs_db: str = "none"
    validator: Draft202012Validator = field(init=False, repr=False, compare=False)
    fits_quickly: quick_check.Check = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        Draft202012Validator.check_schema(self.schema)
        object.__setattr__(self, "validator", Draft202012Validator(self.schema))
        object.__setattr__(self, "fits_quickly", quick_check.compiled(self.schema))

    def fault(self, arguments: Mapping[str, Any]) -> str:
        """Empty when the arguments fit the schema; else the field and what is wrong with it."""
        if self.fits_quickly(arguments):
            return ""
        problem = best_match(self.validator.iter_errors(arguments))
        if problem is None:
            return ""
        place = problem.json_path.removeprefix("$").removeprefix(".") or "arguments"
        return f"{place}: {problem.message[:300]}"


_definitions: dict[str, Tool] = {}


def tool(
    name: str,
    *,
    summary: str,
    schema: Mapping[str, Any],
    mutates: bool = False,
    needs_db: str = "none",
) -> Callable[[Callable[[Work], Executor]], Callable[[Work], Executor]]:
    """Define a tool; decorates what makes its executor. A name is defined once: a second definition is a bug."""

    def define(make: Callable[[Work], Executor]) -> Callable[[Work], Executor]:
        if name in _definitions:
            raise RuntimeError(f"The tool {name} is defined twice.")
        _definitions[name] = Tool(name, summary, schema, mutates, make, needs_db)
        return make

    return define


def known(name: str) -> bool:
    return name in _definitions


def find(name: str) -> Tool | None:
    return _definitions.get(name)


def names() -> list[str]:
    return sorted(_definitions)


def callable_with(tools: frozenset[str], db_access: str) -> frozenset[str]:
    """Of the tools a session was given, those it can really call: what it is told it has is exactly this."""
    return frozenset(name for name in tools if name in _definitions and grants(_definitions[name], db_access))


def grants(definition: Tool, db_access: str) -> bool:
    """True when a step's `access.db` lets the tool work."""
    return ACCESS.index(db_access) >= ACCESS.index(definition.needs_db)
