"""What every request goes through that no view has to think of."""

from __future__ import annotations

from collections.abc import Callable

from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from apps.accounts.models import User
from config import logs
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
