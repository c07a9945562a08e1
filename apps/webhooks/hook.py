"""What a hook answers through Django: how a run is that it started. Deliveries themselves come in by `door`."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from apps.runs import silence
from apps.runs.models import Run
from apps.webhooks.arrivals import Answer
from apps.webhooks.errors import Unverified
from apps.webhooks.judging import NOT_FOUND, Refusal, credentials_of
from apps.webhooks.kinds import bearer
from apps.webhooks.models import Delivery, Trigger
from apps.webhooks.settling import answer_refusal

READ_ONLY = Refusal(405, "method_not_allowed", "How a run is, is read by GET.")


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
    run = Run.objects.select_related("lease_worker").filter(pk=run_id).first() if delivery else None
    if run is None:
        return respond(request, answer_refusal(NOT_FOUND))
    body = {
        "run_id": str(run.pk),
        "status": run.status,
        "reason": run.reason or silence.words(run),
        "queued_at": _moment(run.queued_at),
        "started_at": _moment(run.started_at),
        "finished_at": _moment(run.finished_at),
    }
    return respond(request, Answer(200, body))


def _headers(request: HttpRequest) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def _moment(at: datetime | None) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if at else None
