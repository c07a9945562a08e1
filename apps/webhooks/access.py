"""The only way from a user to a trigger or a delivery."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AnonymousUser
from django.http import Http404

from apps.accounts import access
from apps.accounts.access import Permission
from apps.accounts.models import Team, User
from apps.webhooks.models import Delivery, Trigger


def delivery_for(
    user: User | AnonymousUser, delivery_id: uuid.UUID | str, permission: Permission = Permission.READ
) -> Delivery:
    """Raises Http404 for a stranger, the same as for none at all; PermissionDenied for a member with a smaller role."""
    rows = Delivery.objects.for_user(user).select_related("team", "trigger", "workflow")
    delivery = rows.filter(pk=_uuid(delivery_id, "delivery")).first()
    if delivery is None:
        raise Http404("No such delivery.")
    access.require(user, delivery.team, permission)
    return delivery


def delivery_in(team: Team, given: str) -> Delivery:
    """A delivery of a team that the caller has been let into: by the platform's id, else by the sender's."""
    rows = Delivery.objects.filter(team=team).select_related("team", "trigger", "workflow")
    try:
        delivery = rows.filter(pk=uuid.UUID(given)).first()
    except ValueError:
        delivery = None
    triggers = Trigger.objects.filter(workflow__team=team)  # by them there is an index on the sender's ids
    found = [delivery] if delivery else list(rows.filter(trigger__in=triggers, external_id=given)[:2])
    if len(found) != 1:
        raise Http404("No such delivery." if not found else "Several triggers took this delivery id: use `id`.")
    return found[0]


def trigger_for(
    user: User | AnonymousUser, trigger_id: uuid.UUID | str, permission: Permission = Permission.READ
) -> Trigger:
    """Raises Http404 for a stranger, the same as for none at all; PermissionDenied for a member with a smaller role."""
    rows = Trigger.objects.for_user(user).select_related("workflow__team")
    trigger = rows.filter(pk=_uuid(trigger_id, "trigger")).first()
    if trigger is None:
        raise Http404("No such trigger.")
    access.require(user, trigger.workflow.team, permission)
    return trigger


def _uuid(given: uuid.UUID | str, noun: str) -> uuid.UUID:
    try:
        return uuid.UUID(str(given))
    except ValueError:
        raise Http404(f"No such {noun}.") from None
