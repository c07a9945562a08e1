"""Events: numbered without gaps, committed with what they tell."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from apps.runs import events
from apps.runs.errors import LeaseLost
from apps.runs.events import MAX_DATA_BYTES, News
from apps.runs.kinds import Kind
from apps.runs.models import RunEvent
from apps.workflows.models import Workflow
from tests.runs.starts import fresh, kinds, running, start

pytestmark = pytest.mark.databases


@pytest.mark.django_db(transaction=True)
def test_writers_at_once_leave_neither_gap_nor_double(workflow: Workflow) -> None:
    run = start(workflow)

    def write() -> None:
        for number in range(20):
            try:
                with transaction.atomic():
                    events.record(run.pk, Kind.LOG_GREW, data={"lines": number})
                    if number % 5 == 0:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                pass
        connection.close()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kinds(run)) == 1 + 4 * 16
    assert fresh(run).last_seq == 65


@pytest.mark.django_db
def test_a_holder_whose_fence_was_raised_writes_nothing(workflow: Workflow) -> None:
    run, lease = running(workflow)
    before = kinds(run)
    with pytest.raises(LeaseLost), transaction.atomic():
        events.record_all(run.pk, [News(Kind.STEP_STARTED)], fence=lease.fence - 1)
    assert kinds(run) == before


@pytest.mark.django_db
def test_the_data_of_an_event_is_bounded(workflow: Workflow) -> None:
    run = start(workflow)
    with transaction.atomic():
        events.record(run, Kind.STEP_FAILED, {"step_id": "hello"}, {"detail": "x" * 100_000, "outcome": "script_error"})
        events.record(run, Kind.STEP_FAILED, {"step_id": "hello"}, {"many": list(range(5000))})
    cut, dropped = RunEvent.objects.filter(run=run, kind=Kind.STEP_FAILED).order_by("seq")
    assert len(cut.data["detail"]) < MAX_DATA_BYTES
    assert cut.data["outcome"] == "script_error"
    assert dropped.data == {"left_out": ["many"]}


@pytest.mark.django_db(transaction=True)
def test_an_event_outside_a_transaction_is_a_bug_that_shows(workflow: Workflow) -> None:
    run = start(workflow)
    with pytest.raises(transaction.TransactionManagementError):
        events.record(run, Kind.LOG_GREW)
