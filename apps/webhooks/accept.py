"""The one writer of deliveries: verified arrivals become runs, in one durable transaction with what they started."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import DatabaseError

from apps.durable import durable
from apps.webhooks import settling
from apps.webhooks.arrivals import Answer, Arrival
from apps.webhooks.delivery_file import DeliveryFiles
from apps.webhooks.judging import Refusal, judge_all
from apps.webhooks.settling import answer_refusal

log = logging.getLogger(__name__)

BUSY = Refusal(503, "not_stored", "The delivery could not be stored. Nothing was done. Send it again.")


def accept_deliveries(batch: Sequence[Arrival]) -> list[Answer]:
    """The answer to each arrival, in order. What is answered with a run id is on the disk.

    Delivery, run, session and first event commit together, once the delivery file lies there. All of the batch shares
    one commit. When it can't be stored, all of it is answered 503 and nothing was done.
    """
    files, answers = DeliveryFiles(), list[Answer]()
    try:
        judged = judge_all(batch)
        for one in judged:
            if one.starts and one.start is not None:
                files.write(one)
        files.wait()  # before the transaction: no other writer waits for this disk
        with durable():
            answers = settling.settle(judged)
    except (DatabaseError, OSError):
        log.exception("Deliveries could not be stored: %d arrivals were answered 503.", len(batch))
        answers = [answer_refusal(BUSY) for _ in batch]
    finally:
        files.keep({answer.run_id for answer in answers if answer.status == 202})
    return answers
