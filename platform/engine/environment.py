"""The environment of a step, complete: every name it can have, where its value comes from, and what is left out.

It is built from nothing: the platform's own environment is not inherited (BEHAVIOUR 4, SANDBOX B.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine import json_values

FIXED: Mapping[str, str] = {
    "HOME": "/tmp",  # noqa: S108 - inside
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PATH": "/pulse/deps/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPYCACHEPREFIX": "/tmp/pyc",  # noqa: S108 - inside
    "PYTHONUNBUFFERED": "1",
    "RUN_FOLDER": "/pulse/run",
    "STEP_OUTPUT_DIR": "/pulse/run/out",
    "TMPDIR": "/tmp",  # noqa: S108 - inside
    "TZ": "UTC",
    "USER": "step",
    "WORKFLOW_CODE_ROOT": "/pulse/code",
}
"""Names whose value is the same for every step."""

RESOLVED = frozenset(
    {"PYTHONPATH", "STEP_ID", "VAR_GROUP_NAME", "WORKFLOW_CODE_DEPS", "WORKFLOW_DB_ACCESS", "WORKFLOW_KB_ACCESS"}
)
"""Names whose value follows from the step and the group."""

RUN_SUPPLIED = frozenset(
    {
        "PULSE_SESSION_TOKEN",
        "PULSE_TOOLS_SOCKET",
        "RUN_ENTRY_PATH",
        "RUN_ID",
        "STEP_PARAMS_JSON",
        "STEP_ROUTE_ID",
        "STEP_RUN_ID",
        "STEP_TASK_ID",
        "WORKFLOW_TRIGGER_CONTEXT_FILE",
        "WORKFLOW_TRIGGER_INPUT_FILE",
    }
)
"""Names whose value differs from run to run. In the fingerprint each stands as `<run:NAME>`, present or not."""

WITH_HOSTS = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "http_proxy", "https_proxy", "no_proxy"}
)
"""Names that a step has when it declares hosts."""

PREFIXES = ("VAR_", "SECRET_", "WORKFLOW_KB_")
NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}\Z")
LARGEST = 96 * 1024
"""Of all names and values together: a bit more than the kernel lets a program be started with."""

_LONGEST_LATER = 200
"""No value that a run supplies by itself is longer."""

_MEANT_FOR_STEPS = ("VAR_", "SECRET_", "STEP_", "WORKFLOW_", "RUN_")


@dataclass(frozen=True)
class Dropped:
    """A configured name that does not reach the step, and the rule that says so. Never its value."""

    name: str
    rule: str

    def record(self) -> dict[str, str]:
        return {"name": self.name, "rule": self.rule}


class ValueRefused(ValueError):
    """A configured value cannot be an environment variable. `name` is the variable, the text says why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")
        self.name = name


def allowed(name: str) -> bool:
    """Whether a step's environment may have this name at all."""
    if name in FIXED or name in RESOLVED or name in RUN_SUPPLIED or name in WITH_HOSTS:
        return True
    return any(name.startswith(prefix) and NAME.match(name[len(prefix) :]) for prefix in PREFIXES)


def text(name: str, value: Any) -> str:
    """A configured value as its variable holds it: text as it is, everything else as canonical JSON."""
    shown = value if isinstance(value, str) else json_values.dump(value).decode()
    if "\0" in shown:
        raise ValueRefused(name, "has a NUL character in its value, which no environment variable can hold.")
    try:
        shown.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueRefused(name, "has half of a surrogate pair in its value, which is no text.") from None
    return shown


def variables(group: str, values: Mapping[str, Any]) -> tuple[dict[str, str], list[Dropped]]:
    """`VAR_<NAME>` for each value of a group, `VAR_GROUP_NAME`, and what was left out."""
    found: dict[str, str] = {}
    dropped: list[Dropped] = []
    for name, value in values.items():
        if not NAME.match(name):
            dropped.append(Dropped(f"VAR_{name}", "A variable's name is capital letters, digits and _, at most 64."))
        elif name == "GROUP_NAME":
            dropped.append(Dropped("VAR_GROUP_NAME", "The name is the platform's: it holds the group's own name."))
        else:
            found[f"VAR_{name}"] = text(f"VAR_{name}", value)
    found["VAR_GROUP_NAME"] = text("VAR_GROUP_NAME", group)
    return found, dropped


def ambient_dropped(ambient: Mapping[str, str], env: Mapping[str, str]) -> list[Dropped]:
    """Of the platform's own environment, the names that somebody may have meant for steps."""
    rule = "It is set in the platform's own environment, of which a step inherits nothing."
    return [Dropped(name, rule) for name in sorted(ambient) if name.startswith(_MEANT_FOR_STEPS) and name not in env]


def check_size(env: Mapping[str, str]) -> None:
    """Raises ValueRefused, naming the biggest, when the environment is larger than a program can be started with."""
    sizes = {
        name: len(name.encode()) + len(value.encode("utf-8", "surrogateescape")) + 2 for name, value in env.items()
    }
    total = sum(sizes.values())
    if total > LARGEST:
        biggest = max(sizes, key=lambda name: sizes[name])
        why = (
            f"is the biggest, with {sizes[biggest]} bytes, of an environment of {total}; at most {LARGEST} are allowed."
        )
        raise ValueRefused(biggest, why)


def foreseen(
    group: str, values: Mapping[str, Any], secrets: Mapping[str, str], parameters: Mapping[str, Any]
) -> dict[str, str]:
    """A step's environment as far as it is known before there is a run, for `check_size`; room is left for the rest.

    Raises ValueRefused, naming the variable, for a value that no environment can hold.
    """
    found, _ = variables(group, values)
    held = {f"SECRET_{name}": text(f"SECRET_{name}", value) for name, value in secrets.items()}
    later = dict.fromkeys(RESOLVED | RUN_SUPPLIED, "x" * _LONGEST_LATER)
    return {**FIXED, **later, **found, **held, "STEP_PARAMS_JSON": text("STEP_PARAMS_JSON", dict(parameters))}


def standing(env: Mapping[str, str]) -> dict[str, str]:
    """The environment as the fingerprint has it: what the run supplies stands as `<run:NAME>`, present or not."""
    fixed = {name: value for name, value in env.items() if name not in RUN_SUPPLIED}
    return fixed | {name: f"<run:{name}>" for name in RUN_SUPPLIED}
