"""What started the run, and one way to read a value whatever road it came by."""

from __future__ import annotations

import json
import os

from pulse.errors import TriggerUnreadable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "WORKFLOW_TRIGGER_INPUT_FILE"
WITHOUT_DELIVERY = frozenset({"manual", "api", "builder", "schedule"})
_ABSENT = object()

# What a script calls these things, and where GitHub's events keep them; the first that is there counts.
_GITHUB = {
    "owner": ("repository.owner.login", "repository.owner.name"),
    "repo": ("repository.name",),
    "repository": ("repository.full_name",),
    "full_name": ("repository.full_name",),
    "pull_number": ("pull_request.number", "number"),
    "issue_number": ("issue.number",),
    "number": ("pull_request.number", "issue.number", "number"),
    "head_sha": ("pull_request.head.sha", "check_run.head_sha", "workflow_run.head_sha", "after"),
    "sha": ("pull_request.head.sha", "check_run.head_sha", "workflow_run.head_sha", "after"),
    "base_sha": ("pull_request.base.sha", "before"),
    "head_ref": ("pull_request.head.ref", "workflow_run.head_branch", "ref"),
    "base_ref": ("pull_request.base.ref",),
    "title": ("pull_request.title", "issue.title"),
    "author": ("pull_request.user.login", "issue.user.login", "sender.login"),
    "sender": ("sender.login",),
}


class Trigger:
    """A delivery as the platform wrote it down; on a run without one, only `VAR_*` is read."""

    def __init__(self, path: str, document: dict[str, Any]) -> None:
        self.path = path
        self.document = document
        self.entry_path: str = document.get("entry_path") or os.environ.get("RUN_ENTRY_PATH", "")
        self.event: str = document.get("event") or ""
        self.delivery_id: str = document.get("delivery_id") or ""
        self.variables: dict[str, Any] = document.get("variables") or {}
        self.payload: Any = document.get("payload")

    def value(self, name: str, default: Any = None) -> Any:
        """The value `name`: of the variables, the call's arguments, the payload, the provider's event, or `VAR_*`.

        Of a provider's event a dotted path (`pull_request.head.sha`) or one of the usual short names
        (`owner`, `repo`, `pull_number`, `head_sha`, ...) may be given.
        """
        for source in (self._variable, self._argument, self._flat, self._provider, _configured):
            found = source(name)
            if found is not _ABSENT:
                return found
        return default

    def _variable(self, name: str) -> Any:
        return self.variables.get(name, _ABSENT)

    def _argument(self, name: str) -> Any:
        arguments = self.payload.get("args") if isinstance(self.payload, dict) else None
        return arguments.get(name, _ABSENT) if isinstance(arguments, dict) else _ABSENT

    def _flat(self, name: str) -> Any:
        found = self.payload.get(name, _ABSENT) if isinstance(self.payload, dict) else _ABSENT
        nested = isinstance(found, dict | list) and name in _GITHUB and self.entry_path == "github"
        return _ABSENT if nested else found

    def _provider(self, name: str) -> Any:
        roots = [self.payload]
        if isinstance(self.payload, dict) and isinstance(self.payload.get("event"), dict):
            roots.append(self.payload["event"])
        known = _GITHUB.get(name, ()) if self.entry_path == "github" else ()
        for root in roots:
            for path in (*known, name):
                found = _at(root, path)
                if found is not _ABSENT:
                    return found
        return _ABSENT


def load() -> Trigger:
    """The run's trigger, read anew. Raises TriggerUnreadable where a delivery is expected and is not readable."""
    path = os.environ.get(VARIABLE)
    if not path:
        if os.environ.get("RUN_ENTRY_PATH") in WITHOUT_DELIVERY:
            return Trigger("", {})
        raise TriggerUnreadable("", path is not None, "no file was named.")
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
    except (OSError, ValueError, RecursionError) as error:
        raise TriggerUnreadable(path, True, f"{type(error).__name__}: {error}.") from error
    if not isinstance(document, dict):
        raise TriggerUnreadable(path, True, f"it holds {type(document).__name__}, not an object.")
    return Trigger(path, document)


def _configured(name: str) -> Any:
    return os.environ.get(f"VAR_{name.upper().replace('-', '_')}", _ABSENT)


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return _ABSENT
        value = value[part]
    return value
