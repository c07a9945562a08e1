"""What can go wrong between a step and the platform."""

from __future__ import annotations

BOUNDARY_CODES = frozenset(
    {
        "ambiguous",
        "not_owner",
        "not_registered",
        "parent_ended",
        "permissions_changed",
        "session_ended",
        "session_unknown",
        "tool_not_found",
        "tool_not_granted",
    }
)
"""The codes of a refusal at the boundary of a tool session: a fault of the platform or of the plan."""


class ToolError(Exception):
    """A tool call that did not succeed. `session` is the session that called, `authority` the one it acted for."""

    def __init__(
        self, code: str, message: str, hint: str = "", tool: str = "", session: str = "", authority: str = ""
    ) -> None:
        super().__init__(code, message, hint, tool, session, authority)
        self.code = code
        self.message = message
        self.hint = hint
        self.tool = tool
        self.session = session
        self.authority = authority

    def __str__(self) -> str:
        text = f"{self.tool}: {self.message} [{self.code}]" if self.tool else f"{self.message} [{self.code}]"
        return f"{text} {self.hint}" if self.hint else text


class ToolBoundaryError(ToolError):
    """The call was refused at the boundary of the tool session. Neither retry nor edit the script because of it."""


class MutationUnknown(ToolError):
    """A mutation was sent and no answer came: it may have been applied. Never send it again; read its receipt.

    `pulse.read_receipt(error.call_id)` says what became of it.
    """

    def __init__(self, call_id: str, tool: str = "", message: str = "", hint: str = "") -> None:
        super().__init__(
            "unknown",
            message or "the call was sent and no answer came; it may have been applied.",
            hint or "Do not send it again: pulse.read_receipt(call_id) reads what became of it.",
            tool,
        )
        self.call_id = call_id


class TriggerUnreadable(Exception):
    """The delivery that started this run cannot be read. It says nothing about what the delivery asks for.

    `path` is the file's path ("" when there is none), `variable_set` whether WORKFLOW_TRIGGER_INPUT_FILE was set,
    `cause` the error's own text.
    """

    def __init__(self, path: str, variable_set: bool, cause: str) -> None:
        super().__init__(path, variable_set, cause)
        self.path = path
        self.variable_set = variable_set
        self.cause = cause

    def __str__(self) -> str:
        was = "set" if self.variable_set else "not set"
        what = f"The trigger's file {self.path or '(none)'} cannot be read: {self.cause}"
        return f"{what} WORKFLOW_TRIGGER_INPUT_FILE was {was}."
