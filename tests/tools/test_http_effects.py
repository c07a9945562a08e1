"""What happened over HTTP is not denied because the platform's own database fails after it."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing, contextmanager

import pytest
from django.db import connection, connections
from django.test import Client as Browser

from apps.tools import ledger
from apps.tools.models import Receipt, ToolCall
from apps.workflows.places import places_of
from engine.ids import uuid7
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]
INSERT = {"sql": "INSERT INTO notes (who) VALUES ('me')"}
COUNT = {"sql": "SELECT count(*) AS c FROM notes"}
PATIENCE = {"sqlite": "PRAGMA busy_timeout=200", "postgresql": "SET lock_timeout = 200"}
HOLD = {"sqlite": ["BEGIN IMMEDIATE"], "postgresql": ["BEGIN", "LOCK TABLE tools_toolcall IN EXCLUSIVE MODE"]}


def post(token, tool, body, key):
    return Browser().post(
        f"/api/v1/tools/{tool}",
        json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}", "Idempotency-Key": key},
    )


@contextmanager
def nobody_else_writes():
    other = connection.copy()
    with closing(other):
        with other.cursor() as cursor:
            for statement in HOLD[connection.vendor]:
                cursor.execute(statement)
        yield
        with other.cursor() as cursor:
            cursor.execute("ROLLBACK")


@contextmanager
def without_the_table_of_seals():
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tools_ledgerseal RENAME TO away")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE away RENAME TO tools_ledgerseal")


def answer_when(fails, opened, key):
    """The answer to an insertion. `fails` begins once its intent is written, before it takes effect."""
    answers = []

    def send():
        with connection.cursor() as cursor:
            cursor.execute(PATIENCE[connection.vendor])
        answers.append(post(opened.token, "mutate_workflow_db", INSERT, key))
        connections.close_all()

    sending = threading.Thread(target=send)
    with closing(sqlite3.connect(places_of(opened.session.workflow).database, isolation_level=None)) as workflows:
        workflows.execute("BEGIN IMMEDIATE")
        sending.start()
        end = time.monotonic() + 4
        while not Receipt.objects.exists() and time.monotonic() < end:
            time.sleep(0.01)
        with fails():
            workflows.execute("ROLLBACK")
            sending.join(30)
    return answers[0]


@pytest.fixture
def opened():
    return world.open_client(world.make_workflow())


def test_a_row_that_is_not_imported_in_time_fails_no_call_and_is_imported_later(opened):
    key = str(uuid7())
    answer = answer_when(nobody_else_writes, opened, key)
    assert (answer.status_code, answer.json()["result"]["changes"]) == (200, 1)
    assert not ToolCall.objects.exists()
    assert post(opened.token, "query_workflow_db", COUNT, str(uuid7())).json()["result"]["rows"] == [{"c": 1}]
    assert [row.outcome for row in ToolCall.objects.order_by("seq")] == ["applied", "succeeded"]
    assert Receipt.objects.get().state == "applied"
    assert ledger.verify(opened.session.pk).ok


def test_the_same_key_gets_the_answer_of_a_call_whose_row_is_not_imported_yet(opened):
    key = str(uuid7())
    first = answer_when(nobody_else_writes, opened, key).json()
    assert post(opened.token, "mutate_workflow_db", INSERT, key).json() == first
    assert post(opened.token, "query_workflow_db", COUNT, str(uuid7())).json()["result"]["rows"] == [{"c": 1}]


def test_calls_with_the_id_of_an_unknown_one_do_not_settle_it_as_refused(opened):
    key = str(uuid7())
    answer_when(without_the_table_of_seals, opened, key)
    other = world.open_client(opened.session.workflow)
    for token, body in ((opened.token, COUNT), (other.token, INSERT)):
        assert post(token, "mutate_workflow_db", body, key).json()["error"]["code"] == "call_conflict"
    assert Receipt.objects.get(pk=key).state == "intent"
    for _ in range(2):
        assert post(opened.token, "mutate_workflow_db", INSERT, key).json()["result"]["changes"] == 1
    assert post(opened.token, "read_receipt", {"call_id": key}, str(uuid7())).json()["result"]["outcome"] == "applied"


def test_an_effect_whose_row_cannot_be_written_is_unknown_until_it_is_read_back(opened):
    key = str(uuid7())
    answer = answer_when(without_the_table_of_seals, opened, key)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "unknown")
    assert "read_receipt" in answer.json()["error"]["hint"]
    receipt = post(opened.token, "read_receipt", {"call_id": key}, str(uuid7())).json()["result"]
    assert receipt["outcome"] == "applied"
    world.end(opened.session)
    verdict = ledger.verify(opened.session.pk)
    assert (verdict.ok, verdict.sealed, verdict.rows) == (True, True, 2)
