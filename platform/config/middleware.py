"""What every request goes through that no view has to think of."""

from __future__ import annotations

from collections.abc import Callable

from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.exceptions import SessionInterrupted
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import BadRequest
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views import defaults

from apps.accounts.api_base import problem
from apps.accounts.models import User
from config import logs
from config.busy import BUSY_TEXT, NOT_THE_SESSION, passing
from engine.ids import uuid7

Answer = Callable[[HttpRequest], HttpResponseBase]


class RequestId:
    """Gives each request an id of our own: in the answer's `X-Request-Id`, in errors, in the log."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request.request_id = str(uuid7())  # type: ignore[attr-defined]
        token = logs.request_id.set(request.request_id)  # type: ignore[attr-defined]
        try:
            response = self._answer(request)
        finally:
            logs.request_id.reset(token)
        response["X-Request-Id"] = request.request_id  # type: ignore[attr-defined]
        return response


class Readable:
    """Refuses a NUL character in an address: no database of ours can look for one."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "\0" in request.path:
            return defaults.page_not_found(request, Http404())
        if "%00" in request.META.get("QUERY_STRING", ""):
            return defaults.bad_request(request, BadRequest("A NUL character in the address."))
        return self._answer(request)


class ApiErrors:
    """Below /api/ each error has the API's shape, whoever answered it; what is no fault of ours is a 503 everywhere."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._answer(request)
        # A tool's answer is JSON of its own shape, `{success, result, error}`, whatever its status.
        plain = response.status_code >= 400 and "json" not in response.get("Content-Type", "")
        if not plain or not request.path.startswith("/api/"):
            return response
        code, detail = SAID.get(response.status_code, ("refused", "The request was refused. Nothing was done."))
        shaped = problem(request, response.status_code, code, detail)
        for name in ("Allow", "Retry-After"):
            if name in response:
                shaped[name] = response[name]
        return shaped

    def process_exception(self, request: HttpRequest, wrong: Exception) -> HttpResponse | None:
        return passing(request, wrong)


SAID = {
    400: ("malformed", "The request cannot be read. Nothing was done."),
    404: ("not_found", "There is no such address. /api/v1/docs shows those there are."),
    405: (
        "method_not_allowed",
        "This address does not take that method. Nothing was done; Allow names those it takes.",
    ),
    500: ("internal", "A fault of ours; it is in the log under this request id."),
    503: ("busy", BUSY_TEXT),
}


class Sessions(SessionMiddleware):
    """Django's, which saves the session after the view: there too a database that takes nothing is a 503."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        try:
            return super().process_response(request, response)
        except (SessionInterrupted, OperationalError, OSError) as wrong:
            if (told := passing(request, _behind(wrong), NOT_THE_SESSION)) is None:
                raise
            return told


def _behind(wrong: BaseException) -> BaseException:
    """Django tells of a database that does not take a session as of a session that was deleted meanwhile."""
    while isinstance(wrong, SessionInterrupted | UpdateError) and wrong.__context__ is not None:
        wrong = wrong.__context__
    return wrong


class NoStore:
    """Pages are not kept by browsers or proxies: after signing out, "back" shows nothing. Files of `static/` are."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._answer(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response


class SignInDuties:
    """What comes first after signing in: a password of one's own and, for staff on https, a second factor."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._duty(request) or self._answer(request)

    def _duty(self, request: HttpRequest) -> HttpResponse | None:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or request.path.startswith(_open_paths()):
            return None
        user = request.user
        if not isinstance(user, User):
            return None
        if user.must_change_password:
            return redirect("account_change_password")
        if settings.HTTPS and user.is_staff and request.path.startswith("/admin/") and not is_mfa_enabled(user):
            return redirect("mfa_activate_totp")
        return None


def _open_paths() -> tuple[str, ...]:
    names = ("account_change_password", "account_logout", "account_login", "account_reauthenticate")
    return (*(reverse(name) for name in names), "/accounts/2fa/", "/static/", "/healthz", "/readyz", "/metrics")
