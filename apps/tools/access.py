"""The only way from a user to a tool session."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AnonymousUser
from django.http import Http404

from apps.accounts.models import User
from apps.tools.models import ToolSession
from apps.workflows.models import Workflow


def session_for(user: User | AnonymousUser, session_id: uuid.UUID) -> ToolSession:
    """The session, for a member of its workflow's team. Raises Http404 for a stranger and for no session alike."""
    rows = ToolSession.objects.filter(workflow__in=Workflow.objects.for_user(user).values("pk"))
    session = rows.select_related("workflow__team", "acting_user", "parent").filter(pk=session_id).first()
    if session is None:
        raise Http404("No such session.")
    return session
