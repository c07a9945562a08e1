"""The pages of runs: find, validate, act, show."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET, require_POST

from apps.accounts.access import Permission
from apps.accounts.errors import Refused
from apps.accounts.web import MemberRequest, go, may, page
from apps.runs import actions, artifacts, evidence, fragments, listing
from apps.runs.access import run_for
from apps.runs.forms import RerunForm, RunFilter, SettleForm
from apps.runs.fragments import Choice
from apps.runs.live import page as logs
from apps.runs.models import Attempt, Run
from apps.runs.page import RunPage
from engine.sandbox.errors import FileRefused

TABS = ("log", "timeline", "graph", "result")
ALWAYS = ("head", "notice", "steps", "contract", "calls", "ownership")


@require_GET
@page(Permission.READ)
def run_list(request: MemberRequest) -> HttpResponseBase:
    """Every run of the reader's teams, filtered, a page at a time."""
    wanted = RunFilter.of(request.GET)
    return render(request, "runs/list.html", {"shown": listing.runs(request.user, wanted), "wanted": wanted})


@require_GET
@page(Permission.READ)
def run_page(request: MemberRequest, run_id: uuid.UUID) -> HttpResponseBase:
    run = run_for(request.user, run_id)
    reading, choice = RunPage(run), _choice(request)
    tab = request.GET.get("tab", "log")
    if tab not in TABS:
        raise Http404("No such tab.")
    names = ALWAYS if tab == "log" else (*ALWAYS, tab)
    line = reading.opened(choice.step_id)
    if line is None and choice.step_id:
        raise Http404("No such step.")
    shown = line.attempt(choice.number) if line else None
    choice = Choice(line.step.step_id if line else "", choice.number)
    return render(
        request,
        "runs/run.html",
        {
            "run": run,
            "page": reading,
            "tab": tab,
            "tabs": TABS,
            "choice": choice,
            "log": logs.of_attempt(shown.attempt) if shown and tab == "log" else None,
            "line": line,
            "shown": shown,
            "about": reading.about(line, shown) if line else "",
            "parts": {name: fragments.render_of(name, reading, choice) for name in names},
            "may": may(request.user, run.team),
        },
    )


@require_GET
@page(Permission.READ)
def run_fragment(request: MemberRequest, run_id: uuid.UUID, name: str) -> HttpResponseBase:
    """One live part, for htmx: on the socket's word, or by itself every few seconds without one."""
    run = run_for(request.user, run_id)
    if name not in fragments.FRAGMENTS:
        raise Http404("No such part.")
    return HttpResponse(fragments.render(name, run, _choice(request)))


@require_POST
@page(Permission.RUN)
def cancel(request: MemberRequest, run_id: uuid.UUID) -> HttpResponseBase:
    run = run_for(request.user, run_id, Permission.RUN)
    try:
        actions.cancel_run(run, by=request.user.username)
    except Refused as refused:
        messages.error(request, refused.detail)
    return go(request, _address(run))


@require_POST
@page(Permission.RUN)
def rerun(request: MemberRequest, run_id: uuid.UUID) -> HttpResponseBase:
    run = run_for(request.user, run_id, Permission.RUN)
    form = RerunForm(request.POST)
    if not form.is_valid():
        raise Http404("No such step.")
    try:
        run = actions.rerun(run, by=request.user, **form.cleaned_data)
    except Refused as refused:
        messages.error(request, refused.detail)
    return go(request, _address(run))


@require_POST
@page(Permission.RUN)
def settle(request: MemberRequest, run_id: uuid.UUID) -> HttpResponseBase:
    run = run_for(request.user, run_id, Permission.RUN)
    form = SettleForm(request.POST)
    if not form.is_valid():
        raise Http404("No such choice.")
    try:
        actions.settle_attention(run, by=request.user, **form.cleaned_data)
    except Refused as refused:
        messages.error(request, refused.detail)
    return go(request, _address(run))


@require_GET
@page(Permission.READ)
def artifact(request: MemberRequest, run_id: uuid.UUID, step_id: str, number: int, path: str) -> HttpResponseBase:
    """One output as a download. Never shown as a page of ours: it is the step's word, not the platform's."""
    run = run_for(request.user, run_id)
    attempt = _attempt(run, step_id, number)
    if run.artifacts_expired:
        return render(request, "410.html", status=410)
    try:
        download = artifacts.opened(attempt, path)
    except FileRefused as refused:
        raise Http404("No such file.") from refused
    response = StreamingHttpResponse(download, content_type="application/octet-stream")
    response["Content-Length"] = str(download.size)
    response["Content-Disposition"] = content_disposition_header(True, path.rsplit("/", 1)[-1]) or "attachment"
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    response["X-Content-Type-Options"] = "nosniff"
    return response


@require_GET
@page(Permission.READ)
def compare(request: MemberRequest, run_id: uuid.UUID, step_id: str, number: int) -> HttpResponseBase:
    """What differs between the contracts of two attempts of a step."""
    run = run_for(request.user, run_id)
    attempt = _attempt(run, step_id, number)
    offered = evidence.others(run, attempt)
    asked = request.GET.get("with", "")
    other = next((one for one in offered if str(one.pk) == asked), offered[0] if offered and not asked else None)
    if asked and other is None:
        raise Http404("No such attempt.")
    changes = evidence.difference(attempt, other) if other else []
    context = {"run": run, "attempt": attempt, "offered": offered, "other": other, "changes": changes}
    return render(request, "runs/compare.html", context)


def _choice(request: MemberRequest) -> Choice:
    number = request.GET.get("attempt", "")
    return Choice(request.GET.get("step", "")[:64], int(number) if number.isdecimal() and len(number) < 6 else 0)


def _attempt(run: Run, step_id: str, number: int) -> Attempt:
    return get_object_or_404(
        Attempt.objects.select_related("step_run__run__workflow"),
        step_run__run=run,
        step_run__step_id=step_id,
        number=number,
    )


def _address(run: Run) -> str:
    return reverse("runs:run", args=[run.pk])
