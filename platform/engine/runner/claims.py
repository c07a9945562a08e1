"""What a script says of itself: by boot's descriptor, and by lines it prints. Shown as claimed, not as proven."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

LARGEST = 64 * 1024
REFUSAL, CONCERN = "PULSE_REFUSAL: ", "CONCERN: "
_FIELDS = ("reason", "blocked_action", "resolution")
_LONGEST = 2000


@dataclass(frozen=True)
class Raised:
    """An uncaught exception, as boot saw it."""

    name: str
    traits: frozenset[str]
    file: str
    line: int
    message: str

    def record(self) -> dict[str, Any]:
        return {"class": self.name, "file": self.file, "line": self.line, "message": self.message}


@dataclass
class Claims:
    """`running`: boot came as far as the step's own code. `usage`: its exit was argparse's.

    `exited`: the code above 128 that it gave to sys.exit; without it such a code is an end by a signal.
    """

    running: bool = False
    usage: bool = False
    exited: int | None = None
    raised: Raised | None = None
    refusal: dict[str, str] | None = None
    concerns: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.raised is not None:
            found["exception"] = self.raised.record()
        if self.refusal is not None:
            found["refusal"] = self.refusal
        if self.concerns:
            found["concerns"] = list(self.concerns)
        return found


def parse(data: bytes, lines: Iterable[str]) -> Claims:
    """Both kinds together. Whatever is malformed claims nothing: a step can write what it likes to either."""
    claims = Claims()
    for fields in _messages(data[:LARGEST]):
        _take(claims, fields)
    for text in lines:
        if text.startswith(CONCERN):
            claims.concerns.append(text[len(CONCERN) :][:_LONGEST])
        elif text.startswith(REFUSAL):
            claims.refusal = _refusal(text[len(REFUSAL) :]) or claims.refusal
    return claims


def _take(claims: Claims, fields: list[str]) -> None:
    match fields:
        case ["running"]:
            claims.running = True
        case ["usage"]:
            claims.usage = True
        case ["exit", code]:
            claims.exited = _number(code)
        case ["exception", name, traits, file, line, message]:
            told = frozenset(traits.split(","))
            claims.raised = Raised(name[:200], told, file[:500], _number(line), message[:_LONGEST])


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _messages(data: bytes) -> Iterable[list[str]]:
    while data:
        size, colon, rest = data.partition(b":")
        if not colon or not size.isdigit() or len(size) > 6 or len(rest) < int(size):
            return
        yield rest[: int(size)].decode("utf-8", "replace").split("\0")
        data = rest[int(size) + 1 :]


def _refusal(text: str) -> dict[str, str] | None:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    return {name: str(parsed.get(name) or "")[:_LONGEST] for name in _FIELDS}
