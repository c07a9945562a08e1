"""What preflight found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One finding: where, which kind (`reason`), which name, and for people what to do. Advice never stops a start."""

    path: str
    line: int
    reason: str
    name: str
    message: str
    advice: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}" if self.line else f"{self.path}: {self.message}"

    def record(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "line": self.line,
            "reason": self.reason,
            "name": self.name,
            "message": self.message,
            "advice": self.advice,
        }
