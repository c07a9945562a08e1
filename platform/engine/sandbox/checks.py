"""The result of looking at one thing on this host."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """`cause` says what is wrong when it is not ok, `cure` what to do, `note` what is worth knowing either way.

    A required one that fails: no step runs.
    """

    name: str
    ok: bool
    cause: str = ""
    cure: str = ""
    required: bool = True
    note: str = ""
