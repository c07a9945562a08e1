"""Every write to teams, members and tokens."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from apps.accounts import access, audit
from apps.accounts.errors import RoleRefused, TokenRefused
from apps.accounts.models import ApiToken, Membership, Team, User
from apps.accounts.roles import Role
from apps.accounts.scopes import GIVES, Scope

TOKEN_MARK = "pat_"  # noqa: S105


@dataclass(frozen=True)
class MadeToken:
    """A new token. `secret` is shown once and kept nowhere."""

    token: ApiToken
    secret: str


@transaction.atomic
def create_team(*, slug: str, name: str, owner: User, by: User | None = None) -> Team:
    """A new team whose first owner is `owner`."""
    team = Team.objects.create(slug=slug, name=name)
    Membership.objects.create(team=team, user=owner, role=Role.OWNER)
    audit.record("team.created", team, team=team, by=by or owner, data={"owner": owner.username})
    return team


@transaction.atomic
def set_role(team: Team, user: User, role: Role, *, by: User | None) -> Membership:
    """Make the user a member with this role, whatever the role was before. The last owner stays one."""
    _lock(team)
    before = access.role_of(user, team)
    if before is Role.OWNER and role is not Role.OWNER:
        _refuse_last_owner(team, user)
    membership, _ = Membership.objects.update_or_create(team=team, user=user, defaults={"role": role})
    audit.record(
        "member.role_set", membership, team=team, by=by, data={"user": user.username, "before": before, "role": role}
    )
    return membership


@transaction.atomic
def remove_member(team: Team, user: User, *, by: User | None) -> None:
    """Take the user out of the team, and revoke the user's tokens of it. The last owner stays."""
    _lock(team)
    membership = Membership.objects.filter(team=team, user=user).first()
    if membership is None:
        raise RoleRefused(f"{user.username} is not a member of {team.name}. Nothing was changed.")
    if membership.role == Role.OWNER:
        _refuse_last_owner(team, user)
    audit.record("member.removed", membership, team=team, by=by, data={"user": user.username})
    ApiToken.objects.filter(team=team, user=user, revoked_at=None).update(revoked_at=timezone.now())
    membership.delete()


@transaction.atomic
def set_active(user: User, *, active: bool, by: User | None) -> None:
    """Let the user in or keep the user out; what runs with the user's rights is refused from this moment."""
    for team in user.teams.all():
        _lock(team)
        if not active and access.role_of(user, team) is Role.OWNER:
            _refuse_last_owner(team, user)
    user.is_active = active
    user.save(update_fields=["is_active"])
    audit.record("user.activated" if active else "user.deactivated", user, team=None, by=by)


def make_token(
    team: Team,
    user: User,
    *,
    name: str,
    scopes: Iterable[str],
    by: User | None = None,
    expires_at: datetime | None = None,
) -> MadeToken:
    """A bearer token of the team that acts as `user`, with the user's role of now as its ceiling.

    Raises TokenRefused for an unknown scope, no scope, or one that the user's role does not reach.
    """
    role, wanted = check_token(team, user, scopes)
    secret = TOKEN_MARK + secrets.token_urlsafe(32)
    with transaction.atomic():
        token = ApiToken.objects.create(
            team=team,
            user=user,
            name=name,
            scopes=[scope.value for scope in wanted],
            role=role,
            token_sha256=digest(secret),
            prefix=secret[:12],
            expires_at=expires_at,
        )
        data = {"name": name, "scopes": token.scopes, "holder": user.username}
        audit.record("token.made", token, team=team, by=by or user, data=data)
    return MadeToken(token, secret)


def check_token(team: Team, user: User, scopes: Iterable[str]) -> tuple[Role, list[Scope]]:
    """The role and scopes that a token of the user would have, or TokenRefused; nothing is written."""
    role = access.role_of(user, team)
    if role is None:
        raise TokenRefused(f"{user.username} is no active member of {team.name}. No token was made.", status=403)
    return role, _scopes(scopes, role)


@transaction.atomic
def revoke_token(token: ApiToken, *, by: User | None) -> bool:
    """End the token. False when it had ended before."""
    ended = ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())
    if ended:
        audit.record("token.revoked", token, team=token.team, by=by, data={"name": token.name})
    return bool(ended)


def digest(secret: str) -> str:
    """What is kept of a token: 256 random bits need no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


@transaction.atomic
def require_new_password(user: User) -> None:
    """From now on the user sees only the page that changes the password, until it was changed."""
    user.must_change_password = True
    user.save(update_fields=["must_change_password"])


@transaction.atomic
def password_was_changed(user: User) -> None:
    """The user has a password of the user's own choice: the pages open."""
    if user.must_change_password:
        user.must_change_password = False
        user.save(update_fields=["must_change_password"])
    audit.record("user.password_changed", user, team=None, by=user)


def _scopes(scopes: Iterable[str], role: Role) -> list[Scope]:
    try:
        wanted = sorted({Scope(scope) for scope in scopes})
    except ValueError as wrong:
        raise TokenRefused(f"{wrong}. Known scopes: {', '.join(Scope)}. No token was made.") from None
    if not wanted:
        raise TokenRefused(f"A token needs at least one scope out of {', '.join(Scope)}. No token was made.")
    for scope in wanted:
        if not access.allowed(role, GIVES[scope]):
            needed = access.NEEDS[GIVES[scope]].value
            raise TokenRefused(
                f"The scope {scope} needs the role {needed}; the holder is {role.value}. No token was made.", status=403
            )
    return wanted


def _lock(team: Team) -> None:
    """Take the team's row lock, so that two changes of members cannot cross."""
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)


def _refuse_last_owner(team: Team, user: User) -> None:
    others = Membership.objects.filter(team=team, role=Role.OWNER, user__is_active=True).exclude(user=user)
    if not others.exists():
        raise RoleRefused(
            f"{user.username} is the last owner of {team.name}. Nothing was changed. Make someone else an owner first."
        )
