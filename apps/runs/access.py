"""The only way a view gets a run on behalf of a user."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AnonymousUser
from django.http import Http404

from apps.accounts import access
from apps.accounts.access import Permission
from apps.accounts.models import Team, User
from apps.runs.models import Run


def run_for(user: User | AnonymousUser, run_id: uuid.UUID | str, permission: Permission = Permission.READ) -> Run:
    """The run of that id for someone who may do this with it.

    Raises Http404 for a stranger, the same as for no run at all, and PermissionDenied for a member with a smaller role.
    """
    try:
        wanted = uuid.UUID(str(run_id))
    except ValueError:
        raise Http404("No such run.") from None
    run = Run.objects.for_user(user).select_related("team", "workflow", "lease_worker").filter(pk=wanted).first()
    if run is None:
        raise Http404("No such run.")
    access.require(user, run.team, permission)
    return run


def run_in(team: Team, run_id: uuid.UUID) -> Run:
    """A run of a team that the caller has been let into already (the API's token)."""
    run = Run.objects.select_related("team", "workflow", "lease_worker").filter(team=team, pk=run_id).first()
    if run is None:
        raise Http404("No such run.")
    return run
