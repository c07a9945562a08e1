"""Whom the runner tells and asks while an attempt runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol


class StopKind(StrEnum):
    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Stop:
    """A wish that the attempt ends now."""

    kind: StopKind
    detail: str = ""


class Listeners(Protocol):
    """All calls come from the thread that called `execute`. What one raises ends the attempt and is raised again."""

    def arm(self, socket: Path) -> Stop | None:
        """Start serving this attempt's tools there. Called before the launch; when it raises, nothing is launched,
        nor when it gave up waiting since the attempt must end."""

    def close_tools(self) -> None:
        """Refuse new calls and close every connection. Called first at every ending, before the tree is killed."""

    def started(self, pid: int, pid_started: str) -> Stop | None:
        """The sandbox's outermost process, before the step's code is let go: the last moment for a wish that it ends.
        When it raises, or has one, that code never ran."""

    def log_grew(self, lines: int, size: int) -> None:
        """The log now has so many lines and bytes. At once for the first, then at most every 50 ms."""

    def stop_wanted(self) -> Stop | None:
        """Asked about every 100 ms: must the attempt end?"""

    def boundary_refused(self) -> bool:
        """Whether the ledger has a refused row of this attempt: without it a boundary error is only claimed."""

    def query(self, sql: str, limit: int) -> Sequence[dict[str, Any]]:
        """One read-only query of a validation block on the workflow's database."""
