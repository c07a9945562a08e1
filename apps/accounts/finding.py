"""People and teams by name, for the command line."""

from __future__ import annotations

from apps.accounts.errors import NotFound
from apps.accounts.models import Team, User


def team_of_slug(slug: str) -> Team:
    team = Team.objects.filter(slug=slug).first()
    if team is None:
        known = ", ".join(Team.objects.order_by("slug").values_list("slug", flat=True)[:20])
        known = known or "none yet; an admin makes one at /admin/accounts/team/"
        raise NotFound(f"There is no team {slug!r}. Teams: {known}. Nothing was done.")
    return team


def user_of_name(username: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        raise NotFound(f"There is no user {username!r}. Nothing was done.")
    return user
