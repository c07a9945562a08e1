"""The result of looking at one thing on this host."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`cause` says what is wrong when it is not ok, `cure` what to do. A required one that fails: no step runs. `note` is
    worth knowing either way.
    """

    name: str
    ok: bool
    cause: str = ""
    cure: str = ""
    required: bool = True
    note: str = ""
