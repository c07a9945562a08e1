"""Who may do what in a team. The only way from a user to a team."""

from __future__ import annotations

import enum
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404

from apps.accounts.models import Membership, Team, User
from apps.accounts.roles import Role


class Permission(enum.Enum):
    READ = "read"
    RUN = "run"  # and cancel, rerun, answer, redeliver
    EDIT = "edit"  # plan, code, secrets, triggers, tokens
    OWN = "own"  # members, locks, transfer, delete


NEEDS: dict[Permission, Role] = {
    Permission.READ: Role.VIEWER,
    Permission.RUN: Role.OPERATOR,
    Permission.EDIT: Role.EDITOR,
    Permission.OWN: Role.OWNER,
}


def allowed(role: Role | None, permission: Permission) -> bool:
    return role is not None and role.at_least(NEEDS[permission])


def role_of(user: User | AnonymousUser, team: Team) -> Role | None:
    """The user's role as the database has it now; None for strangers and for users who are not active."""
    if not isinstance(user, User):
        return None
    role = (
        Membership.objects.filter(team=team, user_id=user.pk, user__is_active=True)
        .values_list("role", flat=True)
        .first()
    )
    return Role(role) if role else None


def teams_of(user: User | AnonymousUser) -> QuerySet[Team]:
    if not isinstance(user, User) or not user.is_active:
        return Team.objects.none()
    return Team.objects.filter(memberships__user=user).order_by("slug")


def team_ids(user: User | AnonymousUser) -> list[UUID]:
    """For lists of what grows without end: an index serves one team's newest rows, a join with memberships does not."""
    return list(teams_of(user).order_by().values_list("pk", flat=True))


def team_for(user: User | AnonymousUser, slug: str, permission: Permission = Permission.READ) -> Team:
    """The team of that slug, for someone who may do this in it.

    Raises Http404 for a stranger, the same as for no team at all; PermissionDenied for a smaller role.
    """
    team = teams_of(user).filter(slug=slug).first()
    if team is None:
        raise Http404("No such team.")
    require(user, team, permission)
    return team


def require(user: User | AnonymousUser, team: Team, permission: Permission) -> Role:
    """The user's role when it is enough; else Http404 (a stranger) or PermissionDenied (a member)."""
    role = role_of(user, team)
    if role is None:
        raise Http404("No such team.")
    if not allowed(role, permission):
        raise PermissionDenied(
            f"This needs the role {NEEDS[permission].value} in {team.name}; yours is {role.value}. Nothing was done."
            " Ask an owner of the team."
        )
    return role


def may_own(user: User, team: Team) -> bool:
    """True when workflows of the team may run with this user's rights: an active editor or owner."""
    return allowed(role_of(user, team), Permission.EDIT)
