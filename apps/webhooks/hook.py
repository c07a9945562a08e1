"""The hook as a Django view: raw bytes in, the writer's answer out. `door` serves the same over ASGI, many at once."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import RawPostDataException, UnreadablePostError
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from apps.runs.models import Run
from apps.webhooks import accept
from apps.webhooks.arrivals import Answer, Arrival
from apps.webhooks.errors import Unverified
from apps.webhooks.judging import NO_METHOD, NOT_FOUND, Refusal, credentials_of, too_large
from apps.webhooks.kinds import bearer
from apps.webhooks.models import Delivery, Trigger
from apps.webhooks.settling import answer_refusal

READ_ONLY = Refusal(405, "method_not_allowed", "How a run is, is read by GET.")


@csrf_exempt
def receive(request: HttpRequest, key: str) -> HttpResponse:
    """One delivery. The body is read once, before anything parses it, and not at all when it says it is too large."""
    if request.method != "POST":
        return respond(request, answer_refusal(NO_METHOD))
    limit: int = settings.PULSE_HOOK_BODY_MAX
    if _said_length(request) > limit:
        return respond(request, answer_refusal(too_large(limit)))
    try:
        body = request.read(limit + 1)
    except (RawPostDataException, UnreadablePostError):
        return HttpResponse(status=400)
    arrival = Arrival(
        key=key,
        body=body,
        headers=_headers(request),
        remote=request.META.get("REMOTE_ADDR") or "",
        received_at=timezone.now(),
    )
    return respond(request, accept.accept_deliveries([arrival])[0])


def respond(request: HttpRequest, answer: Answer) -> HttpResponse:
    """The answer, under the request's own id."""
    kind = "application/json" if answer.status < 300 else "application/problem+json"
    own = getattr(request, "request_id", "")
    body = {**answer.body, "request_id": own} if own and "request_id" in answer.body else answer.body
    response = JsonResponse(body, status=answer.status, content_type=kind)
    for name, value in answer.headers.items():
        response[name] = value
    response["Cache-Control"] = "no-store"
    return response


def _said_length(request: HttpRequest) -> int:
    said = request.META.get("CONTENT_LENGTH") or "0"
    return int(said) if said.isdecimal() else 0


@csrf_exempt
def status(request: HttpRequest, key: str, run_id: uuid.UUID) -> HttpResponse:
    """How a run is, for the bearer of the hook's own token: of runs that this hook started, nothing else."""
    if request.method not in {"GET", "HEAD"}:
        answer = respond(request, answer_refusal(READ_ONLY))
        answer["Allow"] = "GET, HEAD"
        return answer
    trigger = Trigger.objects.listening([key]).get(key)
    if trigger is None or trigger.kind != "bearer":
        return respond(request, answer_refusal(NOT_FOUND))
    try:
        bearer.verify(_headers(request), b"", credentials_of(trigger))
    except Unverified as wrong:
        return respond(request, answer_refusal(Refusal(401, wrong.code, "The token of this hook is needed.")))
    delivery = Delivery.objects.filter(trigger=trigger, run_id=run_id).first()
    run = Run.objects.filter(pk=run_id).first() if delivery else None
    if run is None:
        return respond(request, answer_refusal(NOT_FOUND))
    body = {
        "run_id": str(run.pk),
        "status": run.status,
        "reason": run.reason,
        "queued_at": _moment(run.queued_at),
        "started_at": _moment(run.started_at),
        "finished_at": _moment(run.finished_at),
    }
    return respond(request, Answer(200, body))


def _headers(request: HttpRequest) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def _moment(at: datetime | None) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if at else None
