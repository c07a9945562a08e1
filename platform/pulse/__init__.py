"""What a step imports: its parameters, its trigger, its tools, its outputs.

Standard library only. Nothing but `sys` is imported until it is needed: a step that prints one line should not pay
for JSON and sockets.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` itself would cost a step more than its own start
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, NoReturn

    from pulse.client import read_receipt
    from pulse.deliveries import Trigger
    from pulse.errors import MutationUnknown, ToolBoundaryError, ToolError, TriggerUnreadable

    output_dir: Path

__all__ = [
    "MutationUnknown",
    "ToolBoundaryError",
    "ToolError",
    "Trigger",
    "TriggerUnreadable",
    "call",
    "concern",
    "output_dir",
    "params",
    "read_receipt",
    "refuse",
    "tools",
    "trigger",
    "write_json",
]

_LAZY = {
    "MutationUnknown": "errors",
    "ToolBoundaryError": "errors",
    "ToolError": "errors",
    "TriggerUnreadable": "errors",
    "Trigger": "deliveries",
    "read_receipt": "client",
}


def params() -> dict[str, Any]:
    """The step's parameters, checked and with defaults applied, by name; `{}` when it has none."""
    import json
    import os

    parsed = json.loads(os.environ.get("STEP_PARAMS_JSON") or "{}")
    if not isinstance(parsed, dict):
        raise TypeError(f"STEP_PARAMS_JSON holds {type(parsed).__name__}, not an object.")
    return parsed


def trigger() -> Trigger:
    """What started this run. Raises TriggerUnreadable when a delivery is expected and cannot be read."""
    from pulse import deliveries

    return deliveries.load()


def call(tool: str, /, **arguments: Any) -> Any:
    """Calls a tool of this step and returns its result. Raises ToolError and its subclasses."""
    from pulse import client

    return client.call(tool, arguments)


class Tools:
    """`tools.<name>(...)` is `call("<name>", ...)`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def tool(**arguments: Any) -> Any:
            return call(name, **arguments)

        tool.__name__ = tool.__qualname__ = name
        return tool


tools = Tools()


def write_json(name: str, value: Any) -> Path:
    """Writes `value` to the file `name` of the output folder, in one stroke, and returns its path.

    Folders in `name` are made. NaN and infinities are refused: they are no JSON.
    """
    import json
    import os
    from pathlib import Path

    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    target = Path(os.environ["STEP_OUTPUT_DIR"], name)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8", errors="surrogatepass")
    part.replace(target)
    return target


def refuse(reason: str, blocked_action: str = "", resolution: str = "") -> NoReturn:
    """Ends the step on purpose, with exit code 2: it is shown as refused, is not repaired and not retried."""
    import json

    record = {"reason": reason, "blocked_action": blocked_action, "resolution": resolution}
    sys.stdout.flush()
    print(f"PULSE_REFUSAL: {json.dumps(record)}", flush=True)
    raise SystemExit(2)


def concern(text: str) -> None:
    """Says something that does not stop the step but that a person should see beside its result."""
    print(f"CONCERN: {' '.join(str(text).split())}", flush=True)


def __getattr__(name: str) -> Any:
    if name == "output_dir":
        import os
        from pathlib import Path

        return Path(os.environ["STEP_OUTPUT_DIR"])
    if name in _LAZY:
        module = __import__(f"pulse.{_LAZY[name]}", fromlist=[name])
        return getattr(module, name)
    raise AttributeError(f"module 'pulse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
