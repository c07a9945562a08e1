"""Django's admin shows what admins need, and never a secret."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts import access
from apps.accounts import actions as accounts
from apps.accounts.api_base import caller_of
from apps.accounts.models import ApiToken, Audit, Membership, User
from apps.accounts.roles import Role
from apps.runs.models import Worker
from apps.workflows import actions
from apps.workflows.models import Secret
from tests.factories import document, make_team, make_token, make_user, make_workflow

pytestmark = pytest.mark.django_db


@pytest.fixture
def client():
    made = Client()
    made.force_login(make_user("root", staff=True))
    return made


def url(model, page="changelist", *arguments):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=arguments)


def test_the_queues_own_pages_are_gone():
    labels = {model._meta.app_label for model in admin.site._registry}
    assert not labels & {"django_q", "mfa", "account", "auth"}
    assert not admin.site.is_registered(Authenticator)


def test_lists_are_named_as_people_name_them(client):
    page = client.get("/admin/").text
    for name in ("Deliveries", "Audit trail", "API tokens", "Memberships", "Secrets"):
        assert name in page, name
    assert "Deliverys" not in page


def test_every_page_of_the_admin_opens(client):
    cast = make_team()
    make_workflow(cast.team, cast.editor)
    make_token(cast.team, cast.editor, "read")
    assert client.get("/admin/").status_code == 200
    for model in admin.site._registry:
        assert client.get(url(model)).status_code == 200, model


def test_no_page_shows_a_secret_or_what_is_kept_of_a_token(client):
    cast = make_team()
    make_workflow(cast.team, cast.editor, document(secrets=["TOKEN"]))
    actions.set_secret(cast.team, name="TOKEN", value="canary-4713-value", by=cast.editor)
    token = accounts.make_token(cast.team, cast.editor, name="ci", scopes=["read"])
    secret = Secret.objects.get()
    pages = [
        url(Secret),
        url(Secret, "change", secret.pk),
        url(ApiToken),
        url(ApiToken, "change", token.token.pk),
        url(User, "change", cast.editor.pk),
    ]
    for page in pages:
        text = client.get(page).content.decode()
        assert "canary-4713-value" not in text
        assert bytes(secret.ciphertext).hex() not in text
        assert token.token.token_sha256 not in text
        assert token.secret not in text
        assert "argon2" not in text or page.endswith("change/")


def test_a_secret_can_neither_be_added_nor_changed_there(client):
    cast = make_team()
    actions.set_secret(cast.team, name="TOKEN", value="canary-4713-value", by=cast.editor)
    secret = Secret.objects.get()
    assert client.get(url(Secret, "add")).status_code == 403
    assert client.post(url(Secret, "change", secret.pk), {"name": "X"}).status_code == 403
    assert client.post(url(Secret, "delete", secret.pk), {"post": "yes"}).status_code == 403


def test_a_role_set_there_is_the_same_action_as_anywhere(client):
    cast = make_team()
    row = Membership.objects.get(team=cast.team, user=cast.viewer)
    client.post(url(Membership, "change", row.pk), {"role": "operator"})
    assert access.role_of(cast.viewer, cast.team) is Role.OPERATOR
    assert Audit.objects.filter(action="member.role_set", team=cast.team, data__user=cast.viewer.username).exists()


def test_the_last_owner_stays_there_too(client):
    cast = make_team()
    row = Membership.objects.get(team=cast.team, user=cast.owner)
    answer = client.post(url(Membership, "delete", row.pk), {"post": "yes"}, follow=True)
    assert "last owner" in answer.content.decode()
    assert access.role_of(cast.owner, cast.team) is Role.OWNER


def test_switching_a_person_off_is_the_same_action_as_anywhere(client):
    cast = make_team()
    fields = {"username": cast.viewer.username, "email": "", "first_name": "", "last_name": ""}
    client.post(url(User, "change", cast.viewer.pk), fields)
    cast.viewer.refresh_from_db()
    assert not cast.viewer.is_active
    assert Audit.objects.filter(action="user.deactivated", object_id=str(cast.viewer.pk)).exists()


def test_a_person_made_there_must_choose_an_own_password_and_is_never_deleted(client):
    client.post(
        url(User, "add"),
        {
            "username": "newcomer",
            "password1": "long-enough-word",
            "password2": "long-enough-word",
            "usable_password": "true",
        },
    )
    made = User.objects.get(username="newcomer")
    assert made.must_change_password
    assert client.post(url(User, "delete", made.pk), {"post": "yes"}).status_code == 403


def test_a_token_made_there_is_shown_once_and_works(client):
    cast = make_team()
    fields = {"team": str(cast.team.pk), "user": cast.editor.pk, "name": "ci", "scopes": ["read", "build"]}
    answer = client.post(url(ApiToken, "add"), fields)
    (secret,) = set(re.findall(r"pat_[\w-]{30,}", answer.content.decode()))
    caller = caller_of(secret)
    assert caller is not None
    assert (caller.user, caller.scopes) == (cast.editor, {"read", "build"})
    assert answer["Cache-Control"].find("no-store") >= 0
    assert secret not in client.get(url(ApiToken)).content.decode()


def test_a_token_beyond_its_holder_is_refused_in_the_form(client):
    cast = make_team()
    fields = {"team": str(cast.team.pk), "user": cast.viewer.pk, "name": "ci", "scopes": ["admin"]}
    assert "needs the role owner" in client.post(url(ApiToken, "add"), fields).content.decode()
    assert not ApiToken.objects.exists()


def test_tokens_are_revoked_there(client):
    cast = make_team()
    token = accounts.make_token(cast.team, cast.editor, name="ci", scopes=["read"]).token
    client.post(url(ApiToken), {"action": "revoke", "_selected_action": [str(token.pk)]})
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_of_a_worker_that_was_not_heard_of_the_admin_does_not_say_it_lives(client):
    now = timezone.now()
    states = {
        "alive": {},
        "stopping": {"stopping_at": now},
        "stopped": {"stopping_at": now, "stopped_at": now},
        "not heard of": {"heartbeat_at": now - timedelta(minutes=1)},
    }
    for state, times in states.items():
        moments = {"started_at": now, "heartbeat_at": now, **times}
        worker = Worker.objects.create(role="worker", host=state, pid=1, pid_started="1", release="r", **moments)
        shown = admin.site.get_model_admin(Worker).state(worker)
        assert shown == state
        assert f">{state}</td>" in client.get(url(Worker)).text
