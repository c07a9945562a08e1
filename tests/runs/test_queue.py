"""The queue carries run ids and nothing else (attacks 120 and 121)."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django_q.conf import Conf
from django_q.core_signing import dumps
from django_q.models import OrmQ
from django_q.signing import BadSignature, SignedPackage

from apps.accounts.models import Team
from apps.runs import queue, tasks
from apps.runs.models import Run
from apps.runs.supervisor import sweeper
from apps.workflows.models import Workflow
from tests.runs.starts import fresh, start

pytestmark = [pytest.mark.django_db, pytest.mark.databases]


class Pickled:
    """The serializer that django_q comes with."""

    @staticmethod
    def dumps(obj: object) -> bytes:
        return pickle.dumps(obj)


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.marker),)


def signed(message: object, serializer: type | None = None) -> str:
    """A message with the right key, as an insider could make it."""
    kwargs = {"serializer": serializer} if serializer else {"serializer": queue.Messages}
    return dumps(message, key=Conf.SECRET_KEY, salt=Conf.PREFIX, compress=False, **kwargs)


def test_a_started_run_has_one_message_that_holds_its_id_as_text(workflow: Workflow) -> None:
    run = start(workflow)
    task = SignedPackage.loads(OrmQ.objects.get().payload)
    assert (task["func"], task["args"], task["kwargs"]) == (tasks.advance_run, (str(run.pk),), {})
    assert task["save"] is False
    assert run.group not in OrmQ.objects.get().payload


def test_the_broker_of_the_database_takes_each_message_once(workflow: Workflow) -> None:
    broker = queue.database_broker()
    assert broker.dequeue() is None
    run = start(workflow)
    ((_, payload),) = broker.dequeue()
    assert SignedPackage.loads(payload)["args"] == (str(run.pk),)
    assert broker.dequeue() is None
    assert OrmQ.objects.count() == 1  # until it is acknowledged


def test_a_pickle_with_the_right_signature_is_refused_and_not_unpickled(tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    with pytest.raises(BadSignature):
        SignedPackage.loads(signed(Bomb(marker), Pickled))
    assert not marker.exists()


@pytest.mark.parametrize(
    "message",
    [
        {"task": "os.system", "run": "018f0000-0000-7000-8000-000000000000", "at": "2026-01-01T00:00:00+00:00"},
        {"task": "advance_run", "run": "id; touch x", "at": "2026-01-01T00:00:00+00:00"},
        {"task": "advance_run", "run": "018f0000-0000-7000-8000-000000000000", "at": "soon"},
        {"func": "os.system", "args": ["id"], "kwargs": {}, "id": "1", "name": "x"},
        {"task": "advance_run", "run": "018f0000-0000-7000-8000-000000000000", "at": "2026-01-01", "func": "os.system"},
        ["os.system"],
        None,
    ],
)
def test_a_message_of_another_shape_is_refused_even_with_the_right_key(message: object) -> None:
    with pytest.raises(BadSignature):
        SignedPackage.loads(signed(message))


def test_a_message_with_a_wrong_signature_is_refused(workflow: Workflow) -> None:
    start(workflow)
    payload = OrmQ.objects.get().payload
    head, _, tail = payload.rpartition(":")
    forged = f"{head}:{'A' if tail[0] != 'A' else 'B'}{tail[1:]}"
    with pytest.raises(BadSignature):
        SignedPackage.loads(forged)


def test_the_cluster_throws_a_refused_message_away_and_goes_on(workflow: Workflow, tmp_path: Path) -> None:
    from multiprocessing import Event

    from django_q.brokers import get_broker
    from django_q.pusher import pusher
    from django_q.queues import Queue

    marker = tmp_path / "unpickled"
    OrmQ.objects.create(key=Conf.CLUSTER_NAME, payload=signed(Bomb(marker), Pickled), lock="2020-01-01T00:00:00Z")
    run = start(workflow)
    done, taken = Event(), Queue()
    done.set()
    for _ in range(2):
        pusher(taken, done, get_broker())
    assert taken.get(timeout=5)["args"] == (str(run.pk),)
    assert not marker.exists()
    assert OrmQ.objects.count() == 1, "the refused one is gone, the taken one waits for its acknowledgement"


def test_a_run_that_the_queue_never_got_is_queued_by_the_sweeper(workflow: Workflow) -> None:
    run = start(workflow)
    OrmQ.objects.all().delete()
    Run.objects.update(enqueued_at=None)
    assert sweeper.sweep() == 1
    assert OrmQ.objects.count() == 1
    assert fresh(run).enqueued_at is not None
    assert sweeper.sweep() == 0


def test_messages_are_json_and_nothing_secret() -> None:
    text = queue.Messages.dumps({"task": "advance_run", "run": "x", "at": "y"})
    assert json.loads(text) == {"task": "advance_run", "run": "x", "at": "y"}


@pytest.mark.django_db(transaction=True)
def test_what_fails_after_the_commit_takes_nothing_from_it(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with transaction.atomic():
        queue.enqueue("no run at all")  # type: ignore[arg-type]  # it fails once the message is sent
        Team.objects.create(slug="kept", name="Kept")
    assert Team.objects.filter(slug="kept").exists()
    assert OrmQ.objects.exists()
