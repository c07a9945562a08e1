from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from apps.accounts import actions
from apps.accounts.access import Permission
from apps.accounts.api_base import caller_of
from apps.accounts.errors import TokenRefused
from apps.accounts.models import ApiToken, Audit
from apps.accounts.roles import Role
from tests.factories import make_team, make_token

pytestmark = pytest.mark.django_db


def test_a_token_speaks_for_its_holder_within_its_scopes():
    cast = make_team()
    caller = caller_of(make_token(cast.team, cast.operator, "run", "read"))
    assert caller is not None
    assert (caller.user, caller.team, caller.role) == (cast.operator, cast.team, Role.OPERATOR)
    assert caller.may(Permission.RUN)
    assert not caller.may(Permission.EDIT)


def test_only_a_digest_of_it_is_kept_anywhere():
    cast = make_team()
    made = actions.make_token(cast.team, cast.editor, name="ci", scopes=["build"], by=cast.editor)
    row = ApiToken.objects.values().get(pk=made.token.pk)
    assert made.secret.startswith("pat_")
    assert made.secret not in str(row)
    assert made.secret not in str(list(Audit.objects.values()))
    assert row["prefix"] == made.secret[:12]


@pytest.mark.parametrize(
    ("holder", "scope"), [("viewer", "run"), ("operator", "build"), ("editor", "admin"), ("outsider", "read")]
)
def test_it_refuses_a_token_that_reaches_further_than_its_holder(holder, scope):
    cast = make_team()
    with pytest.raises(TokenRefused, match="No token was made"):
        actions.make_token(cast.team, getattr(cast, holder), name="x", scopes=[scope])
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("scopes", [[], ["everything"]])
def test_it_refuses_no_scope_and_unknown_ones(scopes):
    cast = make_team()
    with pytest.raises(TokenRefused, match="read"):
        actions.make_token(cast.team, cast.owner, name="x", scopes=scopes)


def test_a_demoted_holders_token_reaches_no_further_than_the_holder_does_now():
    cast = make_team()
    secret = make_token(cast.team, cast.editor, "build", "read")
    actions.set_role(cast.team, cast.editor, Role.VIEWER, by=cast.owner)
    caller = caller_of(secret)
    assert caller is not None
    assert not caller.may(Permission.EDIT)
    assert caller.may(Permission.READ)


def test_a_promoted_holders_token_stays_as_it_was_made():
    cast = make_team()
    secret = make_token(cast.team, cast.operator, "run")
    actions.set_role(cast.team, cast.operator, Role.OWNER, by=cast.owner)
    caller = caller_of(secret)
    assert caller is not None
    assert caller.role is Role.OPERATOR


@pytest.mark.parametrize("end", ["revoked", "expired", "holder gone", "holder switched off"])
def test_an_ended_token_speaks_for_nobody(end):
    cast = make_team()
    made = actions.make_token(cast.team, cast.operator, name="t", scopes=["run"])
    if end == "revoked":
        actions.revoke_token(made.token, by=cast.owner)
    elif end == "expired":
        ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif end == "holder gone":
        cast.team.memberships.filter(user=cast.operator).delete()
    else:
        actions.set_active(cast.operator, active=False, by=cast.owner)
    assert caller_of(made.secret) is None


@pytest.mark.parametrize("secret", ["", "pat_", "pat_wrong", "pst_x", "pat_ünïcode", "x" * 5000])
def test_what_is_no_token_speaks_for_nobody(secret):
    make_team()
    assert caller_of(secret) is None


def test_the_command_prints_a_token_that_works_once():
    cast = make_team()
    out = StringIO()
    call_command(
        "create_token", team=cast.team.slug, user=cast.editor.username, scopes=["read"], stdout=out, stderr=StringIO()
    )
    caller = caller_of(out.getvalue().strip())
    assert caller is not None
    assert caller.user == cast.editor


def test_the_command_refuses_a_scope_beyond_the_holder():
    cast = make_team()
    with pytest.raises(CommandError, match="needs the role editor"):
        call_command("create_token", team=cast.team.slug, user=cast.viewer.username, scopes=["build"])


def test_the_command_names_the_teams_there_are():
    cast = make_team()
    with pytest.raises(CommandError, match=cast.team.slug):
        call_command("create_token", team="no-such", user=cast.viewer.username, scopes=["read"])
