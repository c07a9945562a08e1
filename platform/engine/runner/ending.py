"""How an attempt ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Output:
    """A file the step left. `problem` is a reason (`result_not_regular`, ...) why the platform will not read it."""

    path: str
    bytes: int
    sha256: str = ""
    problem: str = ""
    contains_secret: bool = False


@dataclass(frozen=True)
class Ending:
    """How an attempt ended. Every text in it is masked. `seal`, `policy`, `validation` are JSON; None: never got there.

    `claims` is what the script said of itself, shown as claimed: `refusal`, `concerns`, `exception`.
    `tree_gone` says that every process of the attempt was seen to be gone.
    """

    outcome: str
    reason: str
    detail: str
    started_at: datetime
    finished_at: datetime
    exit_code: int | None = None
    claims: dict[str, Any] = field(default_factory=dict)
    seal: dict[str, Any] | None = None
    validation: dict[str, Any] | None = None
    code_digest_end: str = ""
    policy: dict[str, Any] | None = None
    tree_gone: bool = True
    outputs: tuple[Output, ...] = ()
    pid: int | None = None
