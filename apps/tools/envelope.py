"""Calls and their answers, as every road has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from apps.tools.errors import Code


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it arrived. `named` are the sessions that path, header or body mention."""

    call_id: UUID
    tool: str
    arguments: Mapping[str, Any]
    token_sha256: str
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Envelope:
    """The answer. `error` is `{code, message, hint}`, with `session` and `authority` when the boundary refused."""

    success: bool
    result: Any = None
    error: Mapping[str, str] | None = None

    @property
    def code(self) -> str:
        return self.error["code"] if self.error else ""

    def as_json(self) -> dict[str, Any]:
        return {"success": self.success, "result": self.result, "error": self.error}


def failure(code: Code, message: str, hint: str = "", **sides: str) -> Envelope:
    return Envelope(False, error={"code": str(code), "message": message, "hint": hint, **sides})
