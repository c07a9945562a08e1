"""The only way from a user to a workflow."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser
from django.http import Http404

from apps.accounts import access
from apps.accounts.access import Permission
from apps.accounts.models import Team, User
from apps.workflows.models import Workflow


def workflow_for(
    user: User | AnonymousUser, team_slug: str, slug: str, permission: Permission = Permission.READ
) -> Workflow:
    """The workflow, for someone who may do this with it.

    Raises Http404 for a stranger, the same as for none at all; PermissionDenied for a member with a smaller role.
    """
    return workflow_in(access.team_for(user, team_slug, permission), slug)


def workflow_in(team: Team, slug: str) -> Workflow:
    """A workflow of a team that the caller has been let into already (the API's token)."""
    workflow = Workflow.objects.select_related("team", "owner").filter(team=team, slug=slug).first()
    if workflow is None:
        raise Http404("No such workflow.")
    return workflow
