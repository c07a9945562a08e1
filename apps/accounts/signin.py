"""How people sign in: what allauth asks of us, and the limits beyond its own."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from apps.accounts import actions
from apps.accounts.models import User

SPREAD_FAILURES = 300
SPREAD_S = 300
KNOWN_S = 30 * 24 * 3600


class AccountAdapter(DefaultAccountAdapter):
    """Accounts are made by admins. allauth counts failures by user and by address; this one, those spread over many."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """When failures come from everywhere, only addresses that have signed in before may still try."""
        failures = cache.get("signin:failures", 0)
        if failures >= SPREAD_FAILURES and not cache.get(self._known_key(request)):
            message: ValidationError = self.validation_error("too_many_login_attempts")
            raise message
        super().pre_authenticate(request, **credentials)

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        cache.add("signin:failures", 0, SPREAD_S)
        cache.incr("signin:failures")
        super().authentication_failed(request, **credentials)

    def login(self, request: HttpRequest, user: AbstractBaseUser) -> None:
        super().login(request, user)
        cache.set(self._known_key(request), 1, KNOWN_S)

    def set_password(self, user: AbstractBaseUser, password: str) -> None:
        super().set_password(user, password)
        if isinstance(user, User):
            actions.password_was_changed(user)

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return "/"  # the dashboard says that it was changed; the form again would look as if it was not

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        super().send_mail(template_prefix, email, {**context, "current_site": _Site()})

    def format_email_subject(self, subject: str) -> str:
        return f"[Pulse] {subject}"

    def get_reset_password_from_key_url(self, key: str) -> str:
        return _on_base_url(super().get_reset_password_from_key_url(key))

    def get_email_confirmation_url(self, request: HttpRequest, emailconfirmation: Any) -> str:
        return _on_base_url(super().get_email_confirmation_url(request, emailconfirmation))

    def _known_key(self, request: HttpRequest) -> str:
        address = base64.urlsafe_b64encode(self.get_client_ip(request).encode()).decode()
        return f"signin:known:{address}"


@dataclass(frozen=True)
class _Site:
    """What mails call the product: its own name, where allauth would take the request's Host header."""

    name: str = "Pulse"

    @property
    def domain(self) -> str:
        return urlsplit(settings.PULSE_BASE_URL).netloc


def _on_base_url(address: str) -> str:
    """What a mail says leads to the configured product, never to the Host header of whoever asked for the mail."""
    parts = urlsplit(address)
    base: str = settings.PULSE_BASE_URL
    return base + parts.path + (f"?{parts.query}" if parts.query else "")
