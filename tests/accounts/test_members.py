from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from apps.accounts import access, actions
from apps.accounts.api_base import caller_of
from apps.accounts.errors import RoleRefused
from apps.accounts.models import Audit
from apps.accounts.roles import Role
from tests.factories import make_team, make_token, make_user

pytestmark = pytest.mark.django_db


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
        lambda cast: actions.set_role(cast.team, cast.owner, Role.EDITOR, by=cast.owner),
        lambda cast: actions.remove_member(cast.team, cast.owner, by=cast.owner),
        lambda cast: actions.set_active(cast.owner, active=False, by=cast.owner),
    ],
    ids=["demoted", "removed", "switched off"],
)
def test_it_refuses_to_lose_the_last_owner(change):
    cast = make_team()
    with pytest.raises(RoleRefused, match="last owner"):
        change(cast)
    assert access.role_of(cast.owner, cast.team) is Role.OWNER


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


@pytest.mark.databases
@pytest.mark.django_db(transaction=True)
def test_two_owners_who_demote_each_other_at_once_leave_one():
    cast = make_team()
    actions.set_role(cast.team, cast.editor, Role.OWNER, by=cast.owner)
    ended: list[BaseException | None] = []

    def demote_the_other() -> None:
        try:
            actions.set_role(cast.team, cast.editor, Role.EDITOR, by=cast.owner)
            ended.append(None)
        except RoleRefused as refused:
            ended.append(refused)
        finally:
            connection.close()

    other = threading.Thread(target=demote_the_other)
    with transaction.atomic():
        actions.set_role(cast.team, cast.owner, Role.EDITOR, by=cast.editor)
        other.start()
        other.join(0.5)  # it waits for this transaction: without the lock it would be through long before
    other.join()
    assert [type(one) for one in ended] == [RoleRefused]
    assert access.role_of(cast.editor, cast.team) is Role.OWNER
