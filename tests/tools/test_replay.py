"""The same call id again: the stored answer, or a conflict; never a second effect."""

from __future__ import annotations

import pytest

from apps.tools.models import Receipt, ToolCall
from engine.ids import uuid7
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]
INSERT = {"sql": "INSERT INTO notes (who) VALUES ('me')"}


@pytest.fixture
def step():
    return world.open_step(world.open_run(world.make_workflow()))


def count(client) -> int:
    return client.query("SELECT count(*) AS c FROM notes")["result"]["rows"][0]["c"]


def test_a_recorded_frame_sent_again_gets_the_stored_answer_and_one_row(step):
    call_id = str(uuid7())
    with world.client_of(step) as client:
        first = client.call("mutate_workflow_db", INSERT, call_id=call_id)
        again = client.call("mutate_workflow_db", INSERT, call_id=call_id)
        assert first == again
        assert count(client) == 1
    assert ToolCall.objects.filter(call_id=call_id).count() == 1


def test_the_answer_is_stored_for_whoever_serves_the_session_later(step):
    """The listener that gave the answer is gone: the receipt has it."""
    call_id = str(uuid7())
    with world.client_of(step) as client:
        first = client.call("mutate_workflow_db", INSERT, call_id=call_id)
    with world.client_of(step) as client:
        assert client.call("mutate_workflow_db", INSERT, call_id=call_id) == first
        assert count(client) == 1


def test_the_same_id_with_other_arguments_is_a_conflict(step):
    call_id = str(uuid7())
    with world.client_of(step) as client:
        client.call("mutate_workflow_db", INSERT, call_id=call_id)
        for tool, arguments in [
            ("mutate_workflow_db", {"sql": "DELETE FROM notes"}),
            ("query_workflow_db", {"sql": "SELECT 1"}),
        ]:
            assert client.call(tool, arguments, call_id=call_id)["error"]["code"] == "call_conflict"
        assert count(client) == 1


def test_an_id_of_another_session_is_a_conflict_and_shows_nothing_of_it(step):
    call_id = str(uuid7())
    other = world.open_step(world.open_run(step.session.workflow), step_id="other")
    with world.client_of(step) as client:
        client.call("mutate_workflow_db", INSERT, call_id=call_id)
    with world.client_of(other) as client:
        answer = client.call("mutate_workflow_db", INSERT, call_id=call_id)
        assert answer["error"]["code"] == "call_conflict"
        assert answer["result"] is None
        assert count(client) == 1


def test_a_mutation_that_was_refused_is_not_tried_again_under_its_id(step):
    call_id = str(uuid7())
    bad = {"sql": "INSERT INTO nowhere VALUES (1)"}
    with world.client_of(step) as client:
        assert client.call("mutate_workflow_db", bad, call_id=call_id)["error"]["code"] == "sql_error"
        assert client.call("mutate_workflow_db", bad, call_id=call_id)["error"]["code"] == "sql_error"
    with world.client_of(step) as client:
        answer = client.call("mutate_workflow_db", bad, call_id=call_id)
    assert answer["error"]["code"] == "call_conflict"
    assert Receipt.objects.get(pk=call_id).state == "refused"


def test_a_read_whose_answer_was_not_kept_is_read_again(step, monkeypatch):
    monkeypatch.setattr("apps.tools.desk.KEPT_ANSWERS", 1)
    call_id = str(uuid7())
    with world.client_of(step) as client:
        first = client.call("query_workflow_db", {"sql": "SELECT 7 AS n"}, call_id=call_id)
        client.query("SELECT 8")
        assert client.call("query_workflow_db", {"sql": "SELECT 7 AS n"}, call_id=call_id) == first


def test_a_receipt_is_read_by_every_attempt_of_its_run_and_by_no_other(step):
    call_id = str(uuid7())
    with world.client_of(step) as client:
        client.call("mutate_workflow_db", INSERT, call_id=call_id)
    run = step.session.parent
    with world.client_of(world.open_step(run, step_id="later")) as client:
        receipt = client.call("read_receipt", {"call_id": call_id})["result"]
        assert (receipt["outcome"], receipt["result"]["changes"]) == ("applied", 1)
    with world.client_of(world.open_step(world.open_run(run.workflow))) as client:
        assert client.call("read_receipt", {"call_id": call_id})["error"]["code"] == "not_found"


def test_an_id_that_never_came_is_not_sent_and_stays_so(step):
    call_id = str(uuid7())
    with world.client_of(step) as client:
        assert client.call("read_receipt", {"call_id": call_id})["result"]["outcome"] == "not_sent"
        assert client.call("mutate_workflow_db", INSERT, call_id=call_id)["success"] is False
        assert count(client) == 0
        assert client.call("read_receipt", {"call_id": call_id})["result"]["outcome"] == "not_sent"
