from __future__ import annotations

import pytest

from apps.accounts import access, actions
from apps.accounts.api_base import caller_of
from apps.accounts.errors import RoleRefused
from apps.accounts.models import Audit, Team
from apps.accounts.roles import Role
from tests.factories import make_team, make_token, make_user

pytestmark = pytest.mark.django_db


def epoch(team: Team) -> int:
    return Team.objects.get(pk=team.pk).access_epoch


def test_a_new_member_gets_the_role_and_leaves_a_trace():
    cast = make_team()
    newcomer = make_user()
    actions.set_role(cast.team, newcomer, Role.OPERATOR, by=cast.owner)
    assert access.role_of(newcomer, cast.team) is Role.OPERATOR
    row = Audit.objects.get(action="member.role_set", data__user=newcomer.username)
    assert row.actor == cast.owner
    assert row.data == {"user": newcomer.username, "before": None, "role": "operator"}


@pytest.mark.parametrize(
    "change",
    [
        lambda cast: actions.set_role(cast.team, cast.viewer, Role.EDITOR, by=cast.owner),
        lambda cast: actions.remove_member(cast.team, cast.viewer, by=cast.owner),
        lambda cast: actions.set_active(cast.viewer, active=False, by=cast.owner),
        lambda cast: actions.revoke_token(
            actions.make_token(cast.team, cast.viewer, name="t", scopes=["read"]).token, by=cast.owner
        ),
    ],
    ids=["role", "removal", "switched off", "token"],
)
def test_each_change_of_access_raises_the_teams_epoch(change):
    cast = make_team()
    before = epoch(cast.team)
    change(cast)
    assert epoch(cast.team) > before


@pytest.mark.parametrize(
    "change",
    [
        lambda cast: actions.set_role(cast.team, cast.owner, Role.EDITOR, by=cast.owner),
        lambda cast: actions.remove_member(cast.team, cast.owner, by=cast.owner),
        lambda cast: actions.set_active(cast.owner, active=False, by=cast.owner),
    ],
    ids=["demoted", "removed", "switched off"],
)
def test_it_refuses_to_lose_the_last_owner(change):
    cast = make_team()
    before = epoch(cast.team)
    with pytest.raises(RoleRefused, match="last owner"):
        change(cast)
    assert access.role_of(cast.owner, cast.team) is Role.OWNER
    assert epoch(cast.team) == before


def test_an_owner_may_go_when_there_is_another():
    cast = make_team()
    actions.set_role(cast.team, cast.editor, Role.OWNER, by=cast.owner)
    actions.remove_member(cast.team, cast.owner, by=cast.editor)
    assert access.role_of(cast.owner, cast.team) is None


def test_a_removed_members_tokens_are_revoked():
    cast = make_team()
    secret = make_token(cast.team, cast.operator, "run")
    actions.remove_member(cast.team, cast.operator, by=cast.owner)
    actions.set_role(cast.team, cast.operator, Role.OPERATOR, by=cast.owner)
    assert caller_of(secret) is None
