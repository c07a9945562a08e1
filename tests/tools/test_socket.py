"""The tool socket: frames in, answers out, a row for each call."""

from __future__ import annotations

import pytest

from apps.tools import ledger
from apps.tools.models import ToolCall
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


def test_a_step_writes_and_reads_its_own_workflow_database():
    step = world.open_step(world.open_run(world.make_workflow()))
    with world.client_of(step) as client:
        assert client.mutate("INSERT INTO notes (who, said) VALUES (?, ?)", "me", "hello")["result"]["changes"] == 1
        assert client.query("SELECT who, said FROM notes")["result"]["rows"] == [{"who": "me", "said": "hello"}]
    assert list(ToolCall.objects.order_by("seq").values_list("seq", "tool", "outcome")) == [
        (1, "mutate_workflow_db", "applied"),
        (2, "query_workflow_db", "succeeded"),
    ]
    world.end(step.session)
    verdict = ledger.verify(step.session.pk)
    assert verdict.ok
    assert verdict.sealed
