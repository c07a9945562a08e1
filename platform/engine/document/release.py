"""What this release honours of the document. The rest is refused with `not_supported_yet`: nothing is ignored.

It reads the raw document, not the models, so that one list holds this and the faults of shape together.
Where a later issue makes something work, its line here goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.problems import Problem, json_path

STEP_KINDS = ("scripted", "branch")
LATER_STEP_KINDS = ("routing", "message_sequence", "orchestrator", "human_input")
TRIGGER_KINDS = ("github", "bearer")
LATER_TRIGGER_KINDS = ("slack", "standard", "function", "internal", "mcp")
TOOL_NEEDS = {"query_workflow_db": "read", "mutate_workflow_db": "read-write", "read_receipt": "none"}
"""The tools there are, and what each needs of a step's `access.db`."""
TOOLS = frozenset(TOOL_NEEDS)
LATER_TOOLS = frozenset(
    {"apply_workflow_db_migration", "create_workflow_db_snapshot"}
    | {"read_file", "write_file", "list_files", "search_files", "patch_file"}
    | {"read_knowledge", "write_knowledge_note", "read_learnings", "record_learning", "run_command"}
    | {"get_route_description", "call_sub_agent", "call_scripted_sub_agent", "query_sub_agent", "stop_sub_agent"}
    | {"get_sub_agent_conversation", "create_human_input_request", "get_human_input_request"}
    | {"withdraw_human_input_request", "mark_human_input_consumed", "notify", "configure_goal_metrics"}
    | {"get_goal_metrics", "record_goal_observations", "execute_step", "run_workflow", "get_run", "list_runs"}
    | {"stop_run", "read_log", "get_workflow", "get_step", "get_execution_contract", "get_costs"}
    | {"list_secret_names", "send_slack_message", "list_functions", "call_function", "get_function_call"}
    | {"register_custom_function", "create_step", "update_step", "delete_step", "set_variable", "set_group"}
    | {"edit_code", "run_preflight", "manage_trigger", "manage_schedule", "set_workflow_contract_version"}
)
ACCESS = ("none", "read", "read-write")
"""From the least to the most."""

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Unsupported:
    """`place` is the key that cannot be honoured; `covers` the part of the document that is not judged further."""

    place: Place
    covers: Place
    what: str

    def problem(self) -> Problem:
        return _not_yet(json_path(self.place), self.what)


def in_workflow(raw: Any) -> Iterator[Unsupported]:
    """Everything in a raw document that this release cannot honour."""
    if not isinstance(raw, Mapping):
        return
    yield from in_plan(raw.get("plan"), ("plan",))
    for index, trigger in enumerate(_list(raw.get("triggers"))):
        place = ("triggers", index)
        if _get(trigger, "kind") in LATER_TRIGGER_KINDS:
            yield Unsupported((*place, "kind"), place, f"triggers of kind {trigger['kind']}")
    if raw.get("schedules"):
        yield Unsupported(("schedules",), ("schedules",), "schedules")
    yield from _in_settings(raw.get("settings"))


def in_plan(raw: Any, root: Place = ()) -> Iterator[Unsupported]:
    for index, step in enumerate(_list(_get(raw, "steps"))):
        yield from _in_step(step, (*root, "steps", index))


def tool_problems(names: Sequence[str], path: str, db_access: str) -> Iterator[Problem]:
    """A step may name only tools that there are, and that can work with the access it has."""
    for index, name in enumerate(names):
        here = f"{path}[{index}]"
        if name in TOOL_NEEDS:
            need = TOOL_NEEDS[name]
            if ACCESS.index(db_access) < ACCESS.index(need):
                message = f"{name} needs access.db to be {need}; it is {db_access}."
                yield Problem(here, "tool_needs_access", message)
        elif name in LATER_TOOLS:
            yield _not_yet(here, f"the tool {name}")
        else:
            yield Problem(here, "unknown_tool", f"There is no tool {name!r}. There are: {', '.join(sorted(TOOLS))}.")


def _not_yet(path: str, what: str) -> Problem:
    message = f"This release does not have {what} yet. Nothing was saved; remove it to go on."
    return Problem(path, "not_supported_yet", message)


def _in_step(step: Any, place: Place) -> Iterator[Unsupported]:
    kind = _get(step, "kind")
    if kind in LATER_STEP_KINDS:
        yield Unsupported((*place, "kind"), place, f"steps of kind {kind}")
        return
    if _get(step, "capabilities"):
        here = (*place, "capabilities")
        yield Unsupported(here, here, "capabilities of steps")
    if _get(_get(step, "network"), "hosts"):
        here = (*place, "network", "hosts")
        yield Unsupported(here, here, "a network for steps")
    if kind == "branch" and _get(step, "source") == "human":
        here = (*place, "source")
        yield Unsupported(here, here, "branches that ask a person")


def _in_settings(settings: Any) -> Iterator[Unsupported]:
    if _get(settings, "repair") in {"auto", "propose"}:
        yield Unsupported(("settings", "repair"), ("settings", "repair"), "any repair but off")
    if _get(settings, "retention"):
        yield Unsupported(("settings", "retention"), ("settings", "retention"), "retention (it keeps all runs)")
    notify = _get(settings, "notify")
    if isinstance(notify, Mapping) and any(notify.values()):
        yield Unsupported(("settings", "notify"), ("settings", "notify"), "notifications")


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
