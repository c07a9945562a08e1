"""Starts, claims and cancels of one workflow at once: they wait for each other, and never for ever."""

from __future__ import annotations

import contextlib
import threading

import pytest
from django.db import connections

from apps.runs import actions, leases
from apps.runs.errors import RunRefused
from apps.runs.models import Run
from tests import factories
from tests.factories import Cast
from tests.runs.starts import start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]
ROUNDS = 25


def test_no_start_claim_or_cancel_ends_in_a_deadlock(cast: Cast) -> None:
    raw = factories.document(settings={"max_concurrent_runs": 1})
    workflow = factories.make_workflow(cast.team, cast.owner, raw)
    faults: list[BaseException] = []

    def act(cancels: bool) -> None:
        try:
            for _ in range(ROUNDS):
                run = start(workflow)
                if not cancels:
                    leases.claim(run.pk)
                with contextlib.suppress(RunRefused):
                    actions.cancel_run(run, by="a test")
        except BaseException as fault:  # noqa: BLE001 - told by the test
            faults.append(fault)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=act, args=(number % 2 == 0,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert faults == []
    assert Run.objects.count() == 6 * ROUNDS
