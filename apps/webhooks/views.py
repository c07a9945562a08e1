"""The pages of deliveries and triggers: find, validate, act, show."""

from __future__ import annotations

import uuid
from http import HTTPStatus

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from apps.accounts.access import Permission
from apps.accounts.errors import Refused
from apps.accounts.web import MemberRequest, go, may, page
from apps.webhooks import actions, deliveries_page, reading
from apps.webhooks.access import delivery_for, trigger_for
from apps.webhooks.actions import Made
from apps.webhooks.deliveries_page import Row, Wanted
from apps.webhooks.forms import SecretForm, TriggerForm
from apps.webhooks.models import Trigger
from apps.workflows.access import workflow_for


@require_GET
@page(Permission.READ)
def deliveries(request: MemberRequest) -> HttpResponseBase:
    wanted = Wanted.of(request.GET)
    return render(
        request, "webhooks/deliveries.html", {"shown": deliveries_page.rows(request.user, wanted), "wanted": wanted}
    )


@require_GET
@page(Permission.READ)
def delivery(request: MemberRequest, delivery_id: uuid.UUID) -> HttpResponseBase:
    found = delivery_for(request.user, delivery_id)
    context = {
        "row": Row(found),
        "delivery": found,
        "body": reading.body_shown(found),
        "may": may(request.user, found.team),
    }
    return render(request, "webhooks/delivery.html", context)


@require_GET
@page(Permission.READ)
def card(request: MemberRequest, delivery_id: uuid.UUID) -> HttpResponseBase:
    """The delivery as a few facts, for the drawer of the run it started."""
    found = delivery_for(request.user, delivery_id)
    return render(request, "webhooks/_card.html", {"row": Row(found), "delivery": found})


@require_POST
@page(Permission.RUN)
def redeliver(request: MemberRequest, delivery_id: uuid.UUID) -> HttpResponseBase:
    found = delivery_for(request.user, delivery_id, Permission.RUN)
    try:
        answer = actions.redeliver(found, by=request.user)
    except Refused as refused:
        messages.error(request, refused.detail)
        return go(request, reverse("webhooks:delivery", args=[found.pk]))
    if answer.status >= HTTPStatus.BAD_REQUEST:
        messages.error(request, f"Sent again, and answered with {answer.status}: {answer.body['detail']}")
    else:
        messages.success(request, f"Sent again; it was answered with {answer.status}.")
    if answer.run_id:
        return go(request, reverse("runs:run", args=[answer.run_id]))
    return go(request, reverse("webhooks:delivery", args=[reading.newest_of(found).pk]))


@require_POST
@page(Permission.EDIT)
def make(request: MemberRequest, team: str, slug: str) -> HttpResponseBase:
    """A new trigger. Its secret is in this one answer and nowhere else."""
    workflow = workflow_for(request.user, team, slug, Permission.EDIT)
    form = TriggerForm(request.POST)
    if not form.is_valid():
        return render(request, "webhooks/trigger_form.html", {"form": form, "workflow": workflow}, status=422)
    try:
        made = actions.make_trigger(
            workflow=workflow, document=form.document(), by=request.user, secret=form.cleaned_data["secret"], new=True
        )
    except Refused as refused:
        at = next((field.path for field in refused.fields if field.path in form.fields), None)
        form.add_error(at, refused.detail)
        return render(
            request, "webhooks/trigger_form.html", {"form": form, "workflow": workflow}, status=refused.status
        )
    return _once(request, made)


@require_POST
@page(Permission.EDIT)
def rotate(request: MemberRequest, trigger_id: uuid.UUID) -> HttpResponseBase:
    """A new secret beside the old one. It is in this one answer and nowhere else."""
    trigger = trigger_for(request.user, trigger_id, Permission.EDIT)
    form = SecretForm(request.POST)
    try:
        made = actions.rotate(trigger, by=request.user, secret=form.cleaned_data["secret"] if form.is_valid() else "")
    except Refused as refused:
        messages.error(request, refused.detail)
        return go(request, _address(trigger))
    return _once(request, made)


@require_POST
@page(Permission.EDIT)
def drop_old(request: MemberRequest, trigger_id: uuid.UUID) -> HttpResponseBase:
    trigger = actions.drop_old(trigger_for(request.user, trigger_id, Permission.EDIT), by=request.user)
    messages.success(request, f"Only the newest secret of {trigger.name} is live now.")
    return go(request, _address(trigger))


@require_POST
@page(Permission.EDIT)
def enable(request: MemberRequest, trigger_id: uuid.UUID) -> HttpResponseBase:
    """On or off, as the form says."""
    trigger = trigger_for(request.user, trigger_id, Permission.EDIT)
    try:
        trigger = actions.set_enabled(trigger, request.POST.get("enabled") == "on", by=request.user)
    except Refused as refused:
        messages.error(request, refused.detail)
        return go(request, _address(trigger))
    messages.success(request, f"{trigger.name} is switched {'on' if trigger.enabled else 'off'}.")
    return go(request, _address(trigger))


@require_POST
@page(Permission.EDIT)
def delete(request: MemberRequest, trigger_id: uuid.UUID) -> HttpResponseBase:
    trigger = trigger_for(request.user, trigger_id, Permission.EDIT)
    actions.delete_trigger(trigger, by=request.user)
    messages.success(request, f"{trigger.name} is deleted. Its deliveries stay.")
    return go(request, _address(trigger))


def _once(request: MemberRequest, made: Made) -> HttpResponse:
    context = {"made": made, "url": reading.hook_url(made.trigger), "back": _address(made.trigger)}
    return render(request, "webhooks/once.html", context)


def _address(trigger: Trigger) -> str:
    workflow = trigger.workflow
    return reverse("dashboard:workflow_tab", args=[workflow.team.slug, workflow.slug, "triggers"])
