"""What comes in at a hook and what is answered: plain values, so that one writer can take many at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

type_json = dict[str, Any]


@dataclass(frozen=True)
class Redelivery:
    """An arrival that a person sends again: it was verified when it first came, and says who sends it."""

    of: UUID
    by: str


@dataclass(frozen=True)
class Arrival:
    """One POST to a hook. `body` is the raw bytes, before anything parsed them.

    `headers` has lower-case names; the values of a repeated header are joined by commas, which no
    signature and no token survives.
    """

    key: str
    body: bytes
    headers: Mapping[str, str]
    remote: str
    received_at: datetime
    redelivery: Redelivery | None = None

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True)
class Answer:
    """What the sender is told. It never holds a byte of the body or a digest of it."""

    status: int
    body: type_json
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        return str(self.body.get("run_id", ""))
