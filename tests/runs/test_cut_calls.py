"""A step is ended in the middle of its tool calls: it is what we did to it, and its run is told so at once."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import connections

from apps.runs import actions, tasks
from apps.runs.models import Attempt, Run
from apps.tools.models import Receipt
from engine.sandbox import processes
from tests import factories
from tests.factories import Cast
from tests.runs.starts import fresh, start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
READS = f"""
import pulse, threading
def call():
    try: pulse.tools.query_workflow_db(sql="{ENDLESS} SELECT count(*) FROM n")
    except BaseException: pass
threads = [threading.Thread(target=call) for _ in range(16)]
for thread in threads: thread.start()
print("up", flush=True)
for thread in threads: thread.join()
"""
CHANGES = f"""
import pulse
print("up", flush=True)
pulse.tools.mutate_workflow_db(sql="{ENDLESS} INSERT INTO seen SELECT count(*) FROM n")
"""


def prepare(cast: Cast, code: str, **keys: object) -> Run:
    tools = ["mutate_workflow_db", "query_workflow_db"]
    step = factories.step("one", tools=tools, access={"db": "read-write"}, **keys)
    files = {"code/one/main.py": code, "db/migrations/0001.sql": "CREATE TABLE seen (n INTEGER);"}
    return start(factories.make_workflow(cast.team, cast.owner, factories.document(steps=[step]), files))


def cancelled_in_the_middle(run: Run) -> float:
    """Seconds from the wish to the end of the last process."""
    took: list[float] = []

    def cancel() -> None:
        try:
            while not (attempt := Attempt.objects.filter(step_run__run=run).exclude(pid=None).first()):
                time.sleep(0.05)
            time.sleep(1.5)
            actions.cancel_run(fresh(run), by="Ann")
            began = time.monotonic()
            assert attempt.pid is not None
            assert processes.wait_gone(attempt.pid, attempt.pid_started, 20)
            took.append(time.monotonic() - began)
        finally:
            connections.close_all()

    thread = threading.Thread(target=cancel)
    thread.start()
    tasks.advance_run(str(run.pk))
    thread.join()
    return took[0]


@pytest.mark.parametrize("code", [READS, CHANGES], ids=["16 reads", "a change"])
def test_a_cancel_ends_a_step_whose_calls_are_in_flight(cast: Cast, code: str) -> None:
    run = prepare(cast, code)
    assert cancelled_in_the_middle(run) < 5  # 2 s are promised, of a machine that does nothing else
    assert fresh(run).status == "cancelled", fresh(run).reason
    assert Attempt.objects.get().outcome == "cancelled"
    assert set(Receipt.objects.values_list("state", flat=True)) <= {Receipt.State.NOT_SENT}


def test_time_that_is_over_in_the_middle_of_a_change_is_a_time_out(cast: Cast) -> None:
    run = prepare(cast, CHANGES, limits={"timeout_s": 2})
    tasks.advance_run(str(run.pk))
    assert Attempt.objects.get().outcome == "timed_out"
    assert fresh(run).status == "failed"
