from __future__ import annotations

import pytest
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from apps.accounts import actions, signin
from apps.accounts.models import Audit
from tests.factories import make_team, make_user

pytestmark = pytest.mark.django_db
PASSWORD = "correct-horse-battery"


@pytest.fixture(autouse=True)
def _no_earlier_failures():
    cache.clear()
    yield
    cache.clear()


def sign_in(client: Client, username: str, password: str, address: str = "192.0.2.1"):
    return client.post(reverse("account_login"), {"login": username, "password": password}, REMOTE_ADDR=address)


def signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_a_person_signs_in_by_name_and_password():
    make_user("ann")
    client = Client()
    answer = sign_in(client, "ann", PASSWORD)
    assert answer.status_code == 302
    assert signed_in(client)


def test_the_session_gets_a_new_id_at_sign_in():
    make_user("ann")
    client = Client()
    session = client.session
    session["before"] = 1
    session.save()
    client.cookies["sessionid"] = session.session_key
    sign_in(client, "ann", PASSWORD)
    assert client.session.session_key != session.session_key


def test_a_wrong_password_and_an_unknown_name_get_the_same_answer():
    make_user("ann")
    texts = []
    for name in ("ann", "nobody-here"):
        answer = sign_in(Client(), name, "wrong-password")
        assert answer.status_code == 200
        texts.append(answer.content.decode().replace(name, "NAME"))
    strip = [line for text in texts for line in text.splitlines() if "csrf" not in line.lower()]
    assert strip[: len(strip) // 2] == strip[len(strip) // 2 :]


def test_one_user_is_locked_after_failures_from_many_addresses():
    make_user("ann")
    for number in range(5):
        sign_in(Client(), "ann", "wrong", f"198.51.100.{number}")
    client = Client()
    sign_in(client, "ann", PASSWORD, "203.0.113.9")
    assert not signed_in(client)


def test_one_address_is_locked_after_failures_for_many_users():
    make_user("ann")
    for number in range(10):
        sign_in(Client(), f"user-{number}", "wrong", "198.51.100.7")
    client = Client()
    sign_in(client, "ann", PASSWORD, "198.51.100.7")
    assert not signed_in(client)
    sign_in(client, "ann", PASSWORD, "198.51.100.8")
    assert signed_in(client)


def test_a_flood_of_unknown_tokens_unlocks_nobody():
    make_user("ann")
    for number in range(5):
        sign_in(Client(), "ann", "wrong", f"198.51.100.{number}")
    for number in range(400):
        headers = {"Authorization": f"Bearer {number}"}
        answer = Client().post("/api/v1/tools/any", "{}", content_type="application/json", headers=headers)
        assert answer.status_code == 401
    client = Client()
    sign_in(client, "ann", PASSWORD, "203.0.113.9")
    assert not signed_in(client)


def test_failures_spread_over_many_lock_all_but_addresses_known_to_be_good(monkeypatch):
    monkeypatch.setattr(signin, "SPREAD_FAILURES", 8)
    make_user("ann")
    make_user("ben")
    known = Client()
    sign_in(known, "ann", PASSWORD, "203.0.113.1")
    for number in range(8):
        sign_in(Client(), f"user-{number}", "wrong", f"198.51.100.{number}")
    stranger, again = Client(), Client()
    sign_in(stranger, "ben", PASSWORD, "203.0.113.2")
    sign_in(again, "ann", PASSWORD, "203.0.113.1")
    assert not signed_in(stranger)
    assert signed_in(again)


def test_nobody_makes_an_account_for_oneself():
    answer = Client().post(reverse("account_signup"), {"username": "eve", "password1": PASSWORD, "password2": PASSWORD})
    assert answer.status_code == 200
    assert not actions.User.objects.filter(username="eve").exists()


def test_a_printed_password_must_be_changed_before_anything_else():
    cast = make_team()
    actions.require_new_password(cast.owner)
    client = Client()
    sign_in(client, cast.owner.username, PASSWORD)
    for path in ("/admin/", "/", "/accounts/email/"):
        answer = client.get(path)
        assert (answer.status_code, answer.get("Location")) == (302, reverse("account_change_password")), path
    assert client.get(reverse("account_change_password")).status_code == 200


def test_after_the_change_the_pages_open():
    cast = make_team()
    actions.require_new_password(cast.owner)
    client = Client()
    sign_in(client, cast.owner.username, PASSWORD)
    new = "a-better-one-than-printed"
    client.post(reverse("account_change_password"), {"oldpassword": PASSWORD, "password1": new, "password2": new})
    cast.owner.refresh_from_db()
    assert not cast.owner.must_change_password
    assert cast.owner.check_password(new)
    assert client.get("/healthz").status_code == 200
    assert Audit.objects.filter(action="user.password_changed", actor=cast.owner).exists()


def test_a_short_password_is_not_taken():
    cast = make_team()
    actions.require_new_password(cast.owner)
    client = Client()
    sign_in(client, cast.owner.username, PASSWORD)
    client.post(
        reverse("account_change_password"), {"oldpassword": PASSWORD, "password1": "short", "password2": "short"}
    )
    cast.owner.refresh_from_db()
    assert cast.owner.must_change_password


def test_staff_on_https_need_a_second_factor_before_the_admin(settings):
    settings.HTTPS = True
    staff = make_user("root", staff=True)
    client = Client()
    client.force_login(staff)
    answer = client.get("/admin/")
    assert (answer.status_code, answer["Location"]) == (302, reverse("mfa_activate_totp"))


def test_staff_on_this_machine_do_not(settings):
    settings.HTTPS = False
    client = Client()
    client.force_login(make_user("root", staff=True))
    assert client.get("/admin/").status_code == 200


def test_the_admin_has_no_sign_in_of_its_own():
    answer = Client().get("/admin/login/?next=/admin/")
    assert answer.status_code == 302
    assert answer["Location"].startswith(reverse("account_login"))


def test_someone_who_is_no_staff_is_kept_out_of_the_admin():
    client = Client()
    client.force_login(make_user("ann"))
    assert client.get("/admin/login/").status_code == 403


def test_a_mail_leads_to_the_configured_address_whatever_host_was_asked(settings):
    settings.ALLOWED_HOSTS = ["*"]
    settings.PULSE_BASE_URL = "https://pulse.example.test"
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    make_user("ann")
    Client().post(reverse("account_reset_password"), {"email": "ann@example.test"}, headers={"Host": "evil.example"})
    assert len(mail.outbox) == 1
    assert "https://pulse.example.test/accounts/" in mail.outbox[0].body
    assert "evil.example" not in mail.outbox[0].body


def test_signed_in_pages_are_kept_by_no_cache():
    cast = make_team()
    client = Client()
    client.force_login(cast.owner)
    for path in (reverse("account_change_password"), "/healthz"):
        assert client.get(path)["Cache-Control"].find("no-store") >= 0, path
