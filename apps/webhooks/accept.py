"""The one writer of deliveries: verified arrivals become runs, in one durable transaction with what they started."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

from django.db import DatabaseError

from apps.durable import durable
from apps.webhooks import delivery_file, settling
from apps.webhooks.arrivals import Answer, Arrival
from apps.webhooks.judging import Judged, Refusal, judge_all
from apps.webhooks.models import Delivery, Trigger
from apps.webhooks.settling import answer_refusal

log = logging.getLogger(__name__)

BUSY = Refusal(503, "not_stored", "The delivery could not be stored. Nothing was done. Send it again.")


def accept_deliveries(batch: Sequence[Arrival]) -> list[Answer]:
    """The answer to each arrival, in order. What is answered with a run id is on the disk.

    Delivery, run, session and first event commit together; the delivery file lies there before they do. All of the
    batch shares one commit. When it can't be stored, all of it is answered 503 and nothing was done.
    """
    files: dict[int, Path] = {}
    try:
        judged = judge_all(batch)
        starting = list(_starting(judged))
        files = {place: delivery_file.path_of(one, trigger) for place, one, trigger in starting}
        delivery_file.write_all({files[place]: delivery_file.content(one, trigger) for place, one, trigger in starting})
        with durable():
            answers = settling.settle(judged)
    except (DatabaseError, OSError):
        log.exception("Deliveries could not be stored: %d arrivals were answered 503.", len(batch))
        answers = [answer_refusal(BUSY) for _ in batch]
    for place, path in files.items():
        if answers[place].status != 202:
            delivery_file.remove(path)
    return answers


def _starting(judged: Sequence[Judged]) -> Iterator[tuple[int, Judged, Trigger]]:
    """Those that will make a run as far as can be seen now: no copies, in the batch or before it."""
    rows = Delivery.objects.taken((one.trigger, one.external_id) for one in judged if one.starts)
    seen: set[tuple[UUID | None, str | None]] = set(rows.values_list("trigger_id", "external_id"))
    for place, one in enumerate(judged):
        if one.starts and one.trigger is not None and (one.trigger.pk, one.external_id) not in seen:
            if one.external_id:
                seen.add((one.trigger.pk, one.external_id))
            yield place, one, one.trigger
