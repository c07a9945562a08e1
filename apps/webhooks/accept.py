"""The one writer of deliveries: verified arrivals become runs, in one durable transaction with what they started."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import F

from apps.accounts.errors import Refused
from apps.durable import durable
from apps.runs import actions as runs
from apps.runs.errors import RunRefused
from apps.runs.models import Run
from apps.webhooks import delivery_file, refusals
from apps.webhooks.arrivals import Answer, Arrival
from apps.webhooks.judging import FAULT, Judged, Refusal, judge_all, refusal_of
from apps.webhooks.kinds.shape import Said
from apps.webhooks.models import Delivery, Trigger
from apps.workflows.models import Workflow

log = logging.getLogger(__name__)

BUSY = Refusal(503, "not_stored", "The delivery could not be stored. Nothing was done. Send it again.")
FULL = Refusal(503, "busy", "The workflow runs as many runs as it may and takes no more. No run was made. Try later.")
RETRY_AFTER_S = "5"


def accept_deliveries(batch: Sequence[Arrival]) -> list[Answer]:
    """The answer to each arrival, in order. What is answered with a run id is on the disk.

    Delivery, run, session and first event commit together; the delivery file lies there before they do. All of the
    batch shares one commit. When it can't be stored, all of it is answered 503 and nothing was done.
    """
    files: dict[int, Path] = {}
    try:
        judged = judge_all(batch)
        for place, one, trigger in _starting(judged):
            files[place] = delivery_file.ensure(one, trigger)
        with durable():
            answers = [_settle(one) for one in judged]
    except (DatabaseError, OSError):
        log.exception("Deliveries could not be stored: %d arrivals were answered 503.", len(batch))
        answers = [answer_refusal(BUSY) for _ in batch]
    for place, path in files.items():
        if answers[place].status != 202:
            delivery_file.remove(path)
    return answers


def answer_refusal(refusal: Refusal) -> Answer:
    """The answer of a refusal, in the shape of the API's errors. It repeats nothing of what was sent."""
    body = {
        "type": f"urn:pulse:{refusal.code}",
        "status": refusal.status,
        "code": refusal.code,
        "detail": refusal.detail,
        "fields": [{"path": field.path, "message": field.message} for field in refusal.fields],
    }
    headers = {503: {"Retry-After": RETRY_AFTER_S}, 401: {"WWW-Authenticate": 'Bearer realm="pulse"'}}
    return Answer(refusal.status, body, headers.get(refusal.status, {}))


def status_url(trigger: Trigger, run_id: object) -> str:
    """Where the sender may ask how the run is: a bearer with its own token, others with a token of the API."""
    if trigger.kind == "bearer":
        return f"{settings.PULSE_BASE_URL}/hooks/{trigger.key}/runs/{run_id}"
    return f"{settings.PULSE_BASE_URL}/api/v1/runs/{run_id}"


def _starting(judged: Sequence[Judged]) -> Iterator[tuple[int, Judged, Trigger]]:
    """Those that will make a run as far as can be seen now: no copies, in the batch or before it."""
    ids = {one.external_id for one in judged if one.starts and one.external_id}
    rows = Delivery.objects.filter(external_id__in=ids).values_list("trigger_id", "external_id") if ids else ()
    seen: set[tuple[UUID | None, str | None]] = set(rows)
    for place, one in enumerate(judged):
        if one.starts and one.trigger is not None and (one.trigger.pk, one.external_id) not in seen:
            if one.external_id:
                seen.add((one.trigger.pk, one.external_id))
            yield place, one, one.trigger


def _settle(one: Judged) -> Answer:
    """Store one arrival in a savepoint of its own; a fault in it takes nobody else's delivery with it."""
    try:
        with transaction.atomic():
            return _decide(one)
    except (Refused, RunRefused) as wrong:
        return _refuse(one, refusal_of(wrong))
    except IntegrityError:
        # PostgreSQL only: a copy that came at the same moment was first.
        with transaction.atomic():
            answer = _answer_known(one)
        if answer is not None:
            return answer
        raise
    except DatabaseError:
        raise
    except Exception:
        log.exception("A delivery of hook %s could not be judged.", one.trigger and one.trigger.pk)
        return answer_refusal(FAULT)


def _decide(one: Judged) -> Answer:
    """The order of BEHAVIOUR 8: refused outright, known already, no run wanted, refused for now, accepted."""
    trigger, said = one.trigger, one.said
    if one.refusal is not None and one.refusal.early:
        return _refuse(one, one.refusal)
    if trigger is None or said is None:
        return _refuse(one, FAULT)
    known = _answer_known(one)
    if known is not None:
        return known
    if not one.listened:
        return _without_run(one, trigger, said)
    if one.refusal is not None:
        return _refuse(one, one.refusal)
    if one.start is not None and _is_full(one.start):
        return _refuse(one, FULL)
    return _accept(one, trigger, said)


def _is_full(start: runs.Admitted) -> bool:
    """Whether the workflow rejects what it can't run at once, and can't run more at once."""
    rules = start.definition.settings
    if rules.on_busy != "reject":
        return False
    # The lock keeps two deliveries from seeing the same last free slot.
    workflow = Workflow.objects.select_for_update().get(pk=start.definition.workflow.pk)
    taking = Run.objects.filter(workflow=workflow, status__in=[Run.Status.QUEUED, Run.Status.RUNNING])
    return taking.count() >= rules.max_concurrent_runs


def _answer_known(one: Judged) -> Answer | None:
    """The answer of a delivery id that has made a run already, or None."""
    if one.trigger is None or one.external_id is None:
        return None
    first = Delivery.objects.taken(one.trigger, one.external_id)
    if first is None:
        return None
    if first.body_sha256 != one.arrival.sha256:
        detail = "This delivery id was here before with another body. No run was made. Send a new id with a new body."
        return _refuse(one, Refusal(409, "delivery_conflict", detail))
    Delivery.objects.filter(pk=first.pk).update(copies=F("copies") + 1)
    status = Run.objects.filter(pk=first.run_id or first.pk).values_list("status", flat=True).first()
    return Answer(
        200, {"duplicate": True, "run_id": str(first.run_id), "status": status, "delivery_id": one.delivery_id}
    )


def _without_run(one: Judged, trigger: Trigger, said: Said) -> Answer:
    verdict = "pong" if said.ping else "ignored"
    reason = "" if said.ping else f"This trigger does not listen to {said.event}."
    if refusals.count(str(trigger.pk), one.arrival.received_at) <= refusals.KEPT_AN_HOUR:
        _row(one, trigger, verdict=verdict, status=200, reason=reason).save(force_insert=True)
    return Answer(200, {"status": verdict} | ({"reason": reason} if reason else {}))


def _accept(one: Judged, trigger: Trigger, said: Said) -> Answer:
    if one.start is None:
        raise ValueError("A delivery that starts a run was judged without its start.")
    delivery_file.ensure(one, trigger)
    delivery = _row(one, trigger, verdict="accepted", status=202, reason="")
    delivery.run_id, delivery.external_id = one.run_id, one.external_id
    delivery.save(force_insert=True)
    runs.start_run(
        workflow=trigger.workflow,
        entry_path=trigger.kind,
        initiator=None,
        initiated_by=_sender(one, trigger, said),
        trigger_name=trigger.name,
        delivery_id=delivery.pk,
        run_id=one.run_id,
        admitted=one.start,
    )
    body = {
        "run_id": str(one.run_id),
        "delivery_id": one.delivery_id,
        "status_url": status_url(trigger, one.run_id),
    }
    return Answer(202, body)


def _refuse(one: Judged, refusal: Refusal) -> Answer:
    """Count the refusal and keep its evidence, as long as this hour's share lasts. An unknown hook only counts."""
    if one.trigger is None:
        refusals.turn_away(one.arrival)
        return answer_refusal(refusal)
    if refusals.count(str(one.trigger.pk), one.arrival.received_at) > refusals.KEPT_AN_HOUR:
        return answer_refusal(refusal)
    delivery = _row(
        one, one.trigger, verdict=refusal.code, status=refusal.status, reason=refusal.reason or refusal.detail
    )
    delivery.body = one.arrival.body[: refusals.KEPT_BYTES]
    delivery.save(force_insert=True)
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
