"""What can go wrong with a run, as people and callers read it."""

from __future__ import annotations

from collections.abc import Sequence

from apps.accounts.errors import Field, Refused

__all__ = ["Field", "IllegalMove", "LeaseLost", "RunError", "RunRefused"]


class RunRefused(Refused):
    """The platform will not do this, and nothing was changed. `status` is the HTTP answer, `code` is public."""

    code = "run_refused"

    def __init__(self, status: int, code: str, detail: str, fields: Sequence[Field] = ()) -> None:
        super().__init__(detail, code=code, status=status, fields=fields)


class RunError(Exception):
    """Something about a run could not be done, and it is not the caller's doing."""


class LeaseLost(RunError):
    """Another holder has the run now: nothing was written, and nothing may be written any more."""


class IllegalMove(RunError):
    """The table of moves does not know this change of state. Nothing was changed."""
