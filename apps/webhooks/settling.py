"""What becomes of judged deliveries, in the caller's transaction: rows for all of them, one statement a table."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, DataError, IntegrityError, transaction
from django.db.models import F

from apps import rows
from apps.accounts.api_base import TITLES
from apps.accounts.errors import Refused
from apps.runs import actions as runs
from apps.runs.models import Run
from apps.webhooks import refusals
from apps.webhooks.arrivals import Answer
from apps.webhooks.judging import FAULT, Judged, Refusal, refusal_of
from apps.webhooks.kinds.shape import Said
from apps.webhooks.models import Delivery, Trigger
from engine.ids import uuid7

log = logging.getLogger(__name__)

CONFLICT = Refusal(
    409,
    "delivery_conflict",
    "This delivery id was here before with another body. No run was made. Send a new id with a new body.",
)
FULL = Refusal(503, "busy", "The workflow runs as many runs as it may and takes no more. No run was made. Try later.")
HEADERS = {503: {"Retry-After": "5"}, 401: {"WWW-Authenticate": 'Bearer realm="pulse"'}, 405: {"Allow": "POST"}}


def settle(judged: Sequence[Judged]) -> list[Answer]:
    """The answers, in order. A fault in one delivery takes nobody else's with it: then each is settled by itself.

    Raises DatabaseError or OSError when nothing can be stored.
    """
    try:
        with transaction.atomic():
            return _Together(judged).settle()
    except Exception as wrong:
        if _nothing_can_be_stored(wrong):
            raise
        return [_settle_alone(one) for one in judged]


def answer_refusal(refusal: Refusal) -> Answer:
    """The answer of a refusal, in the shape of the API's errors. It repeats nothing of what was sent."""
    request_id = str(uuid7())
    body = {
        "type": f"urn:pulse:{refusal.code}",
        "title": TITLES.get(refusal.status, "Refused"),
        "status": refusal.status,
        "code": refusal.code,
        "detail": refusal.detail,
        "fields": [{"path": field.path, "message": field.message} for field in refusal.fields],
        "request_id": request_id,
    }
    return Answer(refusal.status, body, {"X-Request-Id": request_id, **HEADERS.get(refusal.status, {})})


def _settle_alone(one: Judged) -> Answer:
    try:
        try:
            return _settle_again(one)
        except IntegrityError:
            # PostgreSQL only: a copy that came at the same moment was first, and is known by now.
            return _settle_again(one)
    except Refused as wrong:
        return _refuse(one, refusal_of(wrong))
    except Exception as wrong:
        if _nothing_can_be_stored(wrong):
            raise
        log.exception("A delivery of trigger %s could not be settled.", one.trigger and one.trigger.pk)
        return answer_refusal(FAULT)


def _settle_again(one: Judged) -> Answer:
    with transaction.atomic():
        return _Together([one]).settle()[0]


def _nothing_can_be_stored(wrong: Exception) -> bool:
    """Not so when the database only refuses what one of them says."""
    return isinstance(wrong, DatabaseError | OSError) and not isinstance(wrong, IntegrityError | DataError)


class _Together:
    """Deliveries that share a savepoint: looked up in one query, decided one after the other, stored in one go."""

    def __init__(self, judged: Sequence[Judged]) -> None:
        self._judged = judged
        self._rows: list[Delivery] = []
        self._starts: list[runs.Start] = []
        self._started: Counter[UUID] = Counter()
        self._copies: Counter[UUID] = Counter()
        rows = Delivery.objects.taken((one.trigger, one.external_id) for one in judged)
        self._known = {(row.trigger_id, row.external_id): row for row in rows}
        made = [row.run_id for row in self._known.values() if row.run_id]
        self._statuses = dict(Run.objects.filter(pk__in=made).values_list("pk", "status")) if made else {}

    def settle(self) -> list[Answer]:
        answers = [self._decide(one) for one in self._judged]
        rows.insert(self._rows)
        if self._starts:
            runs.start_runs(self._starts)
        for row_id, copies in self._copies.items():
            Delivery.objects.filter(pk=row_id).update(copies=F("copies") + copies)
        return answers

    def _decide(self, one: Judged) -> Answer:
        """The order of BEHAVIOUR 8: refused outright, known already, no run wanted, refused for now, accepted."""
        trigger, said = one.trigger, one.said
        if one.refusal is not None and (one.refusal.early or said is None):
            return _refuse(one, one.refusal)
        if trigger is None or said is None:
            return _refuse(one, FAULT)
        first = self._known.get((trigger.pk, one.external_id)) if one.external_id else None
        if first is not None:
            return self._copy(one, first)
        if not one.listened:
            return _without_run(one, trigger, said)
        if one.refusal is not None or one.start is None:
            return _refuse(one, one.refusal or FAULT)
        if self._is_full(one.start):
            return _refuse(one, FULL)
        return self._accept(one, one.start, trigger, said)

    def _copy(self, one: Judged, first: Delivery) -> Answer:
        if first.body_sha256 != one.arrival.sha256:
            return _refuse(one, CONFLICT)
        self._copies[first.pk] += 1
        status = self._statuses.get(first.run_id or first.pk, Run.Status.QUEUED)
        return Answer(
            200,
            {"duplicate": True, "run_id": str(first.run_id), "status": status, "delivery_id": one.delivery_id},
        )

    def _accept(self, one: Judged, start: runs.Admitted, trigger: Trigger, said: Said) -> Answer:
        row = _row(one, trigger, verdict="accepted", status=202, reason="")
        row.run_id, row.external_id = one.run_id, one.external_id
        self._rows.append(row)
        if row.external_id:
            self._known[trigger.pk, row.external_id] = row
        facts: runs.StartFacts = {
            "trigger_name": trigger.name,
            "delivery_id": row.pk,
            "run_id": one.run_id,
            "admitted": start,
        }
        self._started[trigger.workflow_id] += 1
        self._starts.append(runs.Start(trigger.workflow, trigger.kind, _sender(one, trigger, said), facts))
        body = {
            "run_id": str(one.run_id),
            "delivery_id": one.delivery_id,
            "status_url": _status_url(trigger, one.run_id),
        }
        return Answer(202, body)

    def _is_full(self, start: runs.Admitted) -> bool:
        return runs.is_full(start.definition, besides=self._started[start.definition.workflow.pk])


def _without_run(one: Judged, trigger: Trigger, said: Said) -> Answer:
    verdict = "pong" if said.ping else "ignored"
    reason = "" if said.ping else f"This trigger does not listen to {said.event}."
    if refusals.keeps(trigger, one.arrival.received_at):
        _row(one, trigger, verdict=verdict, status=200, reason=reason).save(force_insert=True)
    return Answer(200, {"status": verdict} | ({"reason": reason} if reason else {}))


def _refuse(one: Judged, refusal: Refusal) -> Answer:
    """Count the refusal and keep its evidence, as long as this hour's share lasts. An unknown hook only counts."""
    if one.trigger is None:
        refusals.turn_away(one.arrival)
        return answer_refusal(refusal)
    if not refusals.keeps(one.trigger, one.arrival.received_at):
        return answer_refusal(refusal)
    row = _row(one, one.trigger, verdict=refusal.code, status=refusal.status, reason=refusal.reason or refusal.detail)
    row.body = one.arrival.body[: refusals.KEPT_BYTES]
    row.save(force_insert=True)
    return answer_refusal(refusal)


def _row(one: Judged, trigger: Trigger, *, verdict: str, status: int, reason: str) -> Delivery:
    arrival, said = one.arrival, one.said
    return Delivery(
        id=one.row_id,
        team_id=trigger.workflow.team_id,
        trigger=trigger,
        workflow=trigger.workflow,
        claimed_id=said.delivery_id if said else "",
        event=said.event if said else "",
        verdict=verdict,
        status=status,
        reason=reason,
        verification=one.verification[:64],
        headers=refusals.kept_headers(arrival.headers),
        body=arrival.body,
        body_bytes=len(arrival.body),
        body_sha256=arrival.sha256,
        remote=arrival.remote[:64],
        redelivery_of_id=arrival.redelivery.of if arrival.redelivery else None,
        received_at=arrival.received_at,
    )


def _sender(one: Judged, trigger: Trigger, said: Said) -> str:
    if one.arrival.redelivery is not None:
        return f"{one.arrival.redelivery.by}, sending a delivery of {trigger.name} again"[:200]
    who = f"{trigger.kind} {said.sender}".strip()
    return f"{who} through {trigger.name}"[:200]


def _status_url(trigger: Trigger, run_id: object) -> str:
    """Where the sender may ask how the run is: a bearer with its own token, others with a token of the API."""
    if trigger.kind == "bearer":
        return f"{settings.PULSE_BASE_URL}/hooks/{trigger.key}/runs/{run_id}"
    return f"{settings.PULSE_BASE_URL}/api/v1/runs/{run_id}"
