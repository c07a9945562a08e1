"""The pages of sessions: who may act, with whose identity, and what each did."""

from __future__ import annotations

import uuid

from django.http import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_GET

from apps.accounts.access import Permission
from apps.accounts.web import MemberRequest, page
from apps.tools import sessions_page
from apps.tools.access import session_for


@require_GET
@page(Permission.READ)
def sessions(request: MemberRequest) -> HttpResponseBase:
    """The live tree; `?ended=1` adds what ended in the last day. htmx asks for the tree alone."""
    tree = sessions_page.tree(request.user, with_ended=request.GET.get("ended") == "1")
    template = "tools/_sessions.html" if request.htmx else "tools/sessions.html"
    return render(request, template, {"tree": tree})


@require_GET
@page(Permission.READ)
def calls(request: MemberRequest, session_id: uuid.UUID) -> HttpResponseBase:
    """The newest calls of one session: below its line in the tree, or as a page."""
    shown = sessions_page.calls_of(session_for(request.user, session_id))
    template = "tools/_session_calls.html" if request.htmx else "tools/session.html"
    return render(request, template, {"shown": shown})
