"""The seam to the queue, which carries run ids and nothing else. The only module that imports django_q.

A message is signed JSON of a fixed shape, never a pickle: whoever can write the queue's table, even with the right key,
can name nothing but a task of `TASKS` and a run id. Results are not stored. django_q starts processes and hands them
ids; leases, attempts, retries and cancelling are rows of ours (STACK: Q1 to Q17).
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.module_loading import import_string

from apps import rows
from apps.runs.models import Run
from apps.tools import driver

TASKS = {"advance_run": "apps.runs.tasks.advance_run"}
LOOK_EVERY_S = {"sqlite": 0.005, "postgresql": 0.02}
"""How often the queue in the database is looked at; with PostgreSQL each look is a message to another process."""

logger = logging.getLogger(__name__)


def enqueue(run_id: uuid.UUID) -> None:
    """The queue gets the id when the caller's transaction commits; what it loses the sweeper queues again.

    The queue in the database takes it in the same commit. Any other is told after it, and may be down then.
    """
    if settings.REDIS_URL:

        def push() -> None:  # a function with a name: Django asks for it when it has failed, and a partial has none
            _push_or_leave(run_id)

        transaction.on_commit(push, robust=True)
        return
    with transaction.atomic():
        _push(run_id)
        _mark(run_id)


def enqueue_new(runs: Sequence[Run]) -> None:
    """As `enqueue`, for runs that this transaction makes: one statement for a queue in the database.

    That queue takes them before their rows are written, which say so then (`enqueued_at`).
    """
    if settings.REDIS_URL:
        for run in runs:
            enqueue(run.pk)
        return
    from django_q.models import OrmQ

    now, key = timezone.now(), _broker().list_key
    for run in runs:
        run.enqueued_at = now
    rows.insert([OrmQ(key=key, payload=_message(run.pk), lock=now) for run in runs])


def depth() -> int:
    """How many messages no cluster has taken yet."""
    return int(_broker().queue_size())


def round_trip() -> str:
    """Sends a message through a queue that no cluster reads, and takes it back. What went wrong; empty when it came."""
    from django_q.brokers import get_broker

    broker: Any = get_broker(list_key=f"doctor-{uuid.uuid4().hex[:12]}")
    sent = uuid.uuid4().hex
    broker.enqueue(sent)
    taken = broker.dequeue() or []
    broker.delete_queue()
    came = [payload.decode() if isinstance(payload, bytes) else payload for _, payload in taken]
    return "" if came == [sent] else f"{len(came)} messages came back where one was sent"


def give_back(run_id: uuid.UUID) -> None:
    """The run's message was used up by a process that takes nothing any more: the sweeper is to queue the run again."""
    Run.objects.queued().filter(pk=run_id).exclude(reason_code=Run.NO_SLOT).update(enqueued_at=None)


def run_cluster(in_each_child: Callable[[], None]) -> None:
    """Serve as the main process of a cluster until SIGTERM (end after the running tasks); blocks.

    `in_each_child` runs first in every process that the cluster forks.
    """
    from django_q.cluster import Cluster

    harden()
    os.register_at_fork(after_in_child=in_each_child)
    broker: Any = None if settings.REDIS_URL else database_broker()
    cluster = Cluster(broker)
    cluster.start()
    while cluster.sentinel is not None and cluster.sentinel.is_alive():
        cluster.sentinel.join(1)


def database_broker() -> Any:
    """The broker of the database, which asks in a few microseconds whether there is a message before it fetches any."""
    from django_q.brokers.orm import ORM
    from django_q.conf import Conf
    from django_q.models import OrmQ

    there = f"SELECT 1 FROM {OrmQ._meta.db_table} WHERE key = %s AND lock < %s LIMIT 1"  # noqa: S608, SLF001

    class Looking(ORM):
        def dequeue(self) -> Any:
            self.get_connection()  # a connection that broke is made anew
            if driver.one(there, [self.list_key, timezone.now()]):
                return super().dequeue()  # type: ignore[no-untyped-call]
            time.sleep(LOOK_EVERY_S[connection.vendor])
            return None

    return Looking(list_key=str(Conf.CLUSTER_NAME))


def harden() -> None:
    """Put our message format in the place of django_q's pickles, in this process. Safe to repeat."""
    from django_q import signing, status

    signing.PickleSerializer = Messages  # type: ignore[misc,assignment]
    # Its figures need a cache shared by processes, and a pickle: heartbeat rows take their place (Q14).
    status.Stat.save = _nothing  # type: ignore[method-assign]


class Messages:
    """The serializer under django_q's signature."""

    @staticmethod
    def dumps(message: object) -> bytes:
        return json.dumps(message, separators=(",", ":"), sort_keys=True).encode()

    @staticmethod
    def loads(data: bytes) -> dict[str, Any]:
        """The task of a message. Anything that is not exactly one of ours is refused as if its signature were wrong."""
        from django_q.signing import BadSignature

        try:
            return _task(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as wrong:
            logger.critical("A message of the queue is none of ours; it was thrown away and nothing was run.")
            raise BadSignature("not a message of this product") from wrong


def _task(message: dict[str, str]) -> dict[str, Any]:
    if set(message) != {"task", "run", "at"}:
        raise ValueError("unknown shape")
    started = parse_datetime(message["at"])
    if started is None:
        raise ValueError("no time")
    return {
        "id": uuid.uuid4().hex,
        "name": message["run"],
        "func": import_string(TASKS[message["task"]]),
        "args": (str(uuid.UUID(message["run"])),),
        "kwargs": {},
        "started": started,
        "save": False,
        "ack_failure": True,
    }


def _push_or_leave(run_id: uuid.UUID) -> None:
    try:
        _push(run_id)
    except Exception:
        # Whatever the broker's client raises when it is down: the run is durable, the sweeper brings it back.
        logger.exception("The queue did not take run %s. The sweeper will queue it.", run_id)
        _broker.cache_clear()
        return
    _mark(run_id)


def _push(run_id: uuid.UUID) -> None:
    _broker().enqueue(_message(run_id))


def _message(run_id: uuid.UUID) -> str:
    from django_q.signing import SignedPackage

    harden()
    message = {"task": "advance_run", "run": str(run_id), "at": timezone.now().isoformat()}
    packed: str = SignedPackage.dumps(message)
    return packed


def _mark(run_id: uuid.UUID) -> None:
    Run.objects.filter(pk=run_id).update(enqueued_at=timezone.now())


@cache
def _broker() -> Any:
    from django_q.brokers import get_broker

    harden()
    return get_broker()


def _nothing(_self: object) -> None:
    return None
