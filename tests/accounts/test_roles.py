from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404

from apps.accounts import access
from apps.accounts.access import Permission
from apps.accounts.roles import Role
from tests.factories import make_team

pytestmark = pytest.mark.django_db

MATRIX = {
    "owner": {Permission.READ, Permission.RUN, Permission.EDIT, Permission.OWN},
    "editor": {Permission.READ, Permission.RUN, Permission.EDIT},
    "operator": {Permission.READ, Permission.RUN},
    "viewer": {Permission.READ},
}


@pytest.mark.parametrize("role", MATRIX)
@pytest.mark.parametrize("permission", list(Permission))
def test_a_role_may_do_what_the_rules_say_and_no_more(role, permission):
    cast = make_team()
    user = getattr(cast, role)
    if permission in MATRIX[role]:
        assert access.team_for(user, cast.team.slug, permission) == cast.team
    else:
        with pytest.raises(PermissionDenied, match="Nothing was done"):
            access.team_for(user, cast.team.slug, permission)


def test_a_stranger_is_told_the_same_as_for_a_team_that_is_not_there():
    cast = make_team()
    with pytest.raises(Http404) as foreign:
        access.team_for(cast.outsider, cast.team.slug)
    with pytest.raises(Http404) as absent:
        access.team_for(cast.outsider, "no-such-team")
    assert str(foreign.value) == str(absent.value)


def test_nobody_who_has_not_signed_in_sees_a_team():
    cast = make_team()
    with pytest.raises(Http404):
        access.team_for(AnonymousUser(), cast.team.slug)


def test_a_user_who_was_switched_off_has_no_role():
    cast = make_team()
    cast.editor.is_active = False
    cast.editor.save()
    assert access.role_of(cast.editor, cast.team) is None
    assert not access.may_own(cast.editor, cast.team)


def test_only_editors_and_owners_may_own_a_workflow():
    cast = make_team()
    able = [user for user in (cast.owner, cast.editor, cast.operator, cast.viewer) if access.may_own(user, cast.team)]
    assert able == [cast.owner, cast.editor]
    assert Role.OWNER.at_least(Role.EDITOR)
