"""What every route of the API shares: who calls, the shape of errors, cursors (DESIGN: API)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import F, Model, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from ninja import Schema
from ninja.security import HttpBearer

from apps.accounts import access, actions, limits
from apps.accounts.access import Permission
from apps.accounts.errors import Field, Forbidden, Refused
from apps.accounts.models import ApiToken, Team, User
from apps.accounts.roles import Role
from apps.accounts.scopes import NEEDED_FOR, Scope

MAX_LIMIT = 200
BAD_TOKENS = {"most": 100, "seconds": 300}
Row = TypeVar("Row", bound=Model)
Item = TypeVar("Item")


class ApiError(Refused):
    """An answer that is not a success, from a route."""


class TooOften(Refused):
    """Answered 429, with `Retry-After`."""

    status = 429
    code = "rate_limited"

    def __init__(self, detail: str, wait_s: int) -> None:
        super().__init__(detail)
        self.wait_s = wait_s


@dataclass(frozen=True)
class Caller:
    """Who calls: a user, through a token of one team. `role` is the smaller of the token's and the user's of now."""

    user: User
    team: Team
    role: Role
    scopes: frozenset[Scope]
    token: ApiToken

    def may(self, permission: Permission) -> bool:
        return NEEDED_FOR[permission] in self.scopes and access.allowed(self.role, permission)


class TeamBearer(HttpBearer):
    """`Authorization: Bearer pat_…`; one header, one token, never a cookie."""

    def authenticate(self, request: HttpRequest, token: str) -> Caller | None:
        caller = caller_of(token)
        if caller is not None:
            slow_down(limits.spend("token", str(caller.token.pk), most=settings.PULSE_API_RATE, seconds=60))
        return caller

    def __call__(self, request: HttpRequest) -> Caller | None:
        address = request.META.get("REMOTE_ADDR", "")
        slow_down(limits.spent("bad-token", address, **BAD_TOKENS))
        # ASGI joins repeated headers with a comma: two credentials read as one that does not exist.
        caller: Caller | None = super().__call__(request)
        if caller is None:
            limits.spend("bad-token", address, **BAD_TOKENS)
        return caller


def slow_down(wait_s: int) -> None:
    """Refuses with TooOften (429) when there is something to wait for, in seconds."""
    if wait_s:
        raise TooOften(f"Too many requests. Nothing was done. Try again in {wait_s} s.", wait_s)


def caller_of(secret: str) -> Caller | None:
    """Who a bearer token speaks for, or None: unknown, expired, revoked, or its holder is no active member any more."""
    if not secret.startswith(actions.TOKEN_MARK) or not secret.isascii():
        return None
    token = ApiToken.objects.select_related("team", "user").filter(token_sha256=actions.digest(secret)).first()
    if token is None or token.revoked_at is not None:
        return None
    now = timezone.now()
    if token.expires_at is not None and token.expires_at <= now:
        return None
    own = access.role_of(token.user, token.team)
    if own is None:
        return None
    if token.last_used_at is None or now - token.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=Now())
    ceiling = Role(token.role)
    role = ceiling if own.at_least(ceiling) else own
    return Caller(token.user, token.team, role, frozenset(Scope(scope) for scope in token.scopes), token)


def require(request: HttpRequest, permission: Permission) -> Caller:
    """The caller, when token and role allow this; else Forbidden, naming the missing scope or role."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    if NEEDED_FOR[permission] not in caller.scopes:
        raise Forbidden(
            f"This needs a token with the scope {NEEDED_FOR[permission]}. Nothing was done.", code="scope_missing"
        )
    if not caller.may(permission):
        needed = access.NEEDS[permission].value
        raise Forbidden(f"This needs the role {needed}; the token's is {caller.role.value}. Nothing was done.")
    return caller


class FieldError(Schema):
    path: str
    message: str


class Problem(Schema):
    """Every answer that is not a success."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    fields: list[FieldError]
    request_id: str


class Page(Schema, Generic[Item]):
    """One page of a list; `next_cursor` is null on the last one."""

    items: list[Item]
    next_cursor: str | None = None


TITLES = {
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Gone",
    413: "Too large",
    415: "Unsupported media type",
    422: "Not valid",
    429: "Too many requests",
    500: "A fault of ours",
    503: "Not available now",
}


def problem(request: HttpRequest, status: int, code: str, detail: str, fields: Sequence[Field] = ()) -> HttpResponse:
    """The error shape: `{type, title, status, code, detail, fields, request_id}`."""
    body = {
        "type": f"urn:pulse:{code}",
        "title": TITLES.get(status, "Refused"),
        "status": status,
        "code": code,
        "detail": detail,
        "fields": [{"path": field.path, "message": field.message} for field in fields],
        "request_id": getattr(request, "request_id", ""),
    }
    response = JsonResponse(body, status=status, content_type="application/problem+json")
    if status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="pulse"'
    return response


def paginate(
    rows: QuerySet[Row], *, cursor: str | None, limit: int = 50, by: str = "id", newest_first: bool = True
) -> tuple[list[Row], str | None]:
    """One page of `rows` in the order of the unique field `by`, and the cursor of the next page.

    The cursor is opaque and stands for a place, not a count: rows that arrive meanwhile neither repeat nor hide others.
    """
    check_range("limit", limit, 1, MAX_LIMIT)
    if cursor:
        rows = _after(rows, by, "lt" if newest_first else "gt", _read_cursor(cursor))
    order = F(by).desc() if newest_first else F(by).asc()
    found = list(rows.order_by(order)[: limit + 1])
    if len(found) <= limit:
        return found, None
    return found[:limit], _make_cursor(getattr(found[limit - 1], by))


def check_range(name: str, number: int, least: int, most: int) -> None:
    """Raises ApiError, naming the parameter, for a number out of its range."""
    if not least <= number <= most:
        raise ApiError(
            f"{name} must be from {least} to {most}.", code=f"bad_{name}", fields=[Field(name, "out of range")]
        )


def one_of(name: str, value: str, known: Iterable[str]) -> str:
    """The value of a filter. Raises ApiError, naming those there are, for one that nothing can have."""
    known = list(known)
    if value not in known:
        raise ApiError(
            f"{name} must be one of: {', '.join(known)}.", code=f"bad_{name}", fields=[Field(name, "unknown")]
        )
    return value


def _after(rows: QuerySet[Row], by: str, comparison: str, place: str) -> QuerySet[Row]:
    try:
        return rows.filter(**{f"{by}__{comparison}": place})
    except (ValueError, TypeError, ValidationError):
        raise _bad_cursor() from None


def _make_cursor(place: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(str(place)).encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> str:
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error):
        raise _bad_cursor() from None
    if not isinstance(place, str):
        raise _bad_cursor()
    return place


def _bad_cursor() -> ApiError:
    return ApiError(
        "The cursor is not one that this API gave. Start again without it.",
        code="bad_cursor",
        fields=[Field("cursor", "unknown")],
    )
