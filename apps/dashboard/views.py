"""The dashboard and the pages of workflows: find, validate, act, show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from apps.accounts.access import Permission, team_for
from apps.accounts.errors import Refused
from apps.accounts.web import MemberRequest, go, may, page
from apps.dashboard import reading, workflow_page
from apps.dashboard.forms import GroupForm, SecretForm, VariableForm
from apps.dashboard.run_form import RunForm, last_inputs
from apps.runs import actions as runs
from apps.runs.forms import RunFilter
from apps.webhooks.forms import TriggerForm
from apps.workflows import actions, definition
from apps.workflows.access import workflow_for
from apps.workflows.models import Workflow

TABS = ("plan", "code", "variables", "triggers", "deliveries", "history", "settings")


@require_GET
@page(Permission.READ)
def home(request: MemberRequest) -> HttpResponseBase:
    """The dashboard; htmx asks for its live part alone."""
    template = "dashboard/_board.html" if request.htmx else "dashboard/home.html"
    return render(request, template, {"board": reading.board(request.user)})


@require_GET
@page(Permission.READ)
def workflows(request: MemberRequest) -> HttpResponseBase:
    return render(request, "workflows/list.html", {"listed": workflow_page.workflows(request.user)})


@require_GET
@page(Permission.READ)
def team_workflows(request: MemberRequest, team: str) -> HttpResponseBase:
    found = team_for(request.user, team)
    context = {"listed": workflow_page.workflows(request.user, found.slug), "team": found}
    return render(request, "workflows/list.html", context)


@require_GET
@page(Permission.READ)
def workflow(request: MemberRequest, team: str, slug: str) -> HttpResponseBase:
    """The overview: graph, run form, last runs."""
    found = workflow_for(request.user, team, slug)
    context = workflow_page.overview(found, RunFilter.of(request.GET))
    return _show(request, found, "overview", {**context, "form": _form(found)})


@require_GET
@page(Permission.READ)
def workflow_tab(request: MemberRequest, team: str, slug: str, tab: str) -> HttpResponseBase:
    found = workflow_for(request.user, team, slug)
    readers: dict[str, Callable[[], dict[str, Any]]] = {
        "plan": lambda: workflow_page.plan(found),
        "code": lambda: workflow_page.code(found, request.GET.get("file", "")),
        "variables": lambda: workflow_page.variables(found),
        "triggers": lambda: {**workflow_page.triggers(found), "form": TriggerForm()},
        "deliveries": lambda: workflow_page.deliveries(found),
        "history": lambda: workflow_page.history(found, _number(request)),
        "settings": lambda: workflow_page.settings(found),
    }
    if tab not in readers:
        raise Http404("No such tab.")
    return _show(request, found, tab, readers[tab]())


@require_POST
@page(Permission.RUN)
def start(request: MemberRequest, team: str, slug: str) -> HttpResponseBase:
    """Start a run by hand; what is refused is shown beside the form, and no run exists."""
    found = workflow_for(request.user, team, slug, Permission.RUN)
    loaded = definition.load(found)
    form = RunForm(loaded, last_inputs(loaded), request.POST)
    if form.is_valid():
        try:
            run = runs.start_run(
                workflow=found,
                entry_path="manual",
                initiated_by=request.user.username,
                initiator=request.user,
                **form.facts(),
            )
        except Refused as refused:
            _tell(form, refused)
        else:
            return go(request, reverse("runs:run", args=[run.pk]))
    context = {**workflow_page.overview(found, RunFilter()), "form": form}
    return _show(request, found, "overview", context, status=422)


@require_POST
@page(Permission.EDIT)
def set_variable(request: MemberRequest, team: str, slug: str) -> HttpResponseBase:
    found = workflow_for(request.user, team, slug, Permission.EDIT)
    form = VariableForm(request.POST)
    return _saved(request, found, "variable", form, lambda data: actions.set_variable(found, by=request.user, **data))


@require_POST
@page(Permission.EDIT)
def set_group(request: MemberRequest, team: str, slug: str) -> HttpResponseBase:
    found = workflow_for(request.user, team, slug, Permission.EDIT)
    form = GroupForm(found.variables.values_list("name", flat=True), request.POST)
    return _saved(request, found, "group", form, lambda data: actions.set_group(found, by=request.user, **data))


@require_POST
@page(Permission.EDIT)
def set_secret(request: MemberRequest, team: str, slug: str) -> HttpResponseBase:
    """Save a secret's value. It is never shown again, here or anywhere."""
    found = workflow_for(request.user, team, slug, Permission.EDIT)
    form = SecretForm(request.POST)
    return _saved(request, found, "secret", form, lambda data: actions.set_secret(found.team, by=request.user, **data))


def _saved(
    request: MemberRequest, found: Workflow, kind: str, form: forms.Form, save: Callable[[dict[str, Any]], object]
) -> HttpResponse:
    """Save what the form says and go back to the tab; what is refused is said, and the form stays open as typed."""
    refusal = " ".join(f"{name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items())
    if not refusal:
        try:
            done = save(form.cleaned_data)
        except Refused as refused:
            refusal = refused.detail
        else:
            messages.success(request, f"{form.cleaned_data['name']} is saved.")
            if warning := getattr(done, "warning", ""):
                messages.warning(request, warning)
            return go(request, reverse("dashboard:workflow_tab", args=[found.team.slug, found.slug, "variables"]))
    messages.error(request, refusal)
    failed = workflow_page.Failed(kind, form.data)
    return _show(request, found, "variables", workflow_page.variables(found, failed), status=422)


def _show(
    request: MemberRequest, found: Workflow, tab: str, context: dict[str, Any], status: int = 200
) -> HttpResponse:
    base = {"workflow": found, "tab": tab, "tabs": TABS, "may": may(request.user, found.team)}
    return render(request, f"workflows/{tab}.html", {**base, **context}, status=status)


def _form(found: Workflow) -> RunForm:
    loaded = definition.load(found)
    return RunForm(loaded, last_inputs(loaded))


def _tell(form: RunForm, refused: Refused) -> None:
    for field in refused.fields:
        form.refuse(field.path, field.message)
    if not refused.fields:
        form.add_error(None, refused.detail)


def _number(request: HttpRequest) -> int:
    text = request.GET.get("revision", "")
    return int(text) if text.isdecimal() and len(text) < 9 else 0
