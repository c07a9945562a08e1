"""Refusals that a person or a program is told of. Anything else that is raised is a bug of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """What is wrong with one part of what was sent: a JSON path and a message."""

    path: str
    message: str


class Refused(Exception):
    """Nothing was done; the text says what happened, what was not done and what to do.

    The API answers it as it stands; a page shows `detail` beside the form.
    """

    status = 400
    code = "refused"

    def __init__(self, detail: str, *, code: str = "", status: int = 0, fields: Sequence[Field] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.status = status or type(self).status
        self.fields = tuple(fields)


class Forbidden(Refused):
    """The object may be seen, but not this be done with it."""

    status = 403
    code = "forbidden"


class NotFound(Refused):
    """There is no such thing, or it may not be seen: one answer for both."""

    status = 404
    code = "not_found"


class RoleRefused(Refused):
    """A change of members that would break a rule of teams."""

    status = 409
    code = "role_refused"


class TokenRefused(Refused):
    """A token that would reach further than its holder."""

    status = 400
    code = "token_refused"
