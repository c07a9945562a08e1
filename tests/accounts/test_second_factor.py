"""A second factor, from its making to the next sign-in."""

from __future__ import annotations

import re
import time

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from tests.factories import make_user

pytestmark = pytest.mark.django_db
PASSWORD = "correct-horse-battery"


@pytest.fixture(autouse=True)
def _on_https(settings):
    settings.HTTPS = True
    cache.clear()
    yield
    cache.clear()


def code_of(secret: str) -> str:
    return totp.format_hotp_value(totp.hotp_value(secret, next(iter(totp.yield_hotp_counters_from_time()))))


def activate(client: Client) -> str:
    client.post(reverse("account_login"), {"login": "root", "password": PASSWORD})
    client.post(reverse("account_reauthenticate"), {"password": PASSWORD})
    page = client.get(reverse("mfa_activate_totp"))
    secret = str(page.context["form"].secret)
    answer = client.post(reverse("mfa_activate_totp"), {"code": code_of(secret)})
    assert answer.status_code == 302, answer.content
    return secret


def test_staff_make_one_and_then_the_admin_opens():
    make_user("root", staff=True)
    client = Client()
    activate(client)
    assert client.get("/admin/").status_code == 200


def test_its_secret_is_kept_encrypted():
    make_user("root", staff=True)
    secret = activate(Client())
    row = Authenticator.objects.get(type="totp")
    assert secret not in str(row.data)
    assert re.match(r"k[0-9a-f]{8}:", row.data["secret"])


def test_the_password_alone_does_not_sign_in_any_more(monkeypatch):
    make_user("root", staff=True)
    secret = activate(Client())
    cache.clear()
    client = Client()
    client.post(reverse("account_login"), {"login": "root", "password": PASSWORD})
    assert "_auth_user_id" not in client.session
    client.post(reverse("mfa_authenticate"), {"code": "000000"})
    assert "_auth_user_id" not in client.session
    time_of_next_code = time.time() + 30
    monkeypatch.setattr(totp.time, "time", lambda: time_of_next_code)  # a code counts once
    client.post(reverse("mfa_authenticate"), {"code": code_of(secret)})
    assert "_auth_user_id" in client.session
