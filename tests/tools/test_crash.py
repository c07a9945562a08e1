"""The server dies, or closes, in the middle of a mutation: what is known is said, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing as closing_
from contextlib import contextmanager, suppress

import pytest
from django.db import connections
from django.utils import timezone

from apps.tools import closing, journal, ledger, receipts
from apps.tools.endpoint import ToolEndpoint
from apps.tools.models import OwnershipDiagnostic, Receipt, ToolCall, ToolSession
from apps.tools.workflow_db import database, writing
from apps.workflows.places import places_of
from engine.ids import uuid7
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]
INSERT = {"sql": "INSERT INTO notes (who) VALUES ('me')"}


@pytest.fixture
def step():
    return world.open_step(world.open_run(world.make_workflow()))


def die(*_args, **_more):
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def server_that_dies(step, prepare: Callable[[], None]):
    """The endpoint in a process of its own, as a worker serves it; it kills itself where `prepare` says."""
    connections.close_all()
    with world.sockets() as folder:
        path = folder / "tools.sock"
        child = os.fork()
        if child == 0:
            try:
                prepare()
                ToolEndpoint(step.session.pk, fence=1).arm(path)
                time.sleep(60)
            finally:
                os._exit(1)
        try:
            end = time.monotonic() + 30
            while not path.exists() and time.monotonic() < end:
                time.sleep(0.01)
            yield path
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def in_a_child_that_dies(what: Callable[[], object]) -> None:
    connections.close_all()
    child = os.fork()
    if child == 0:
        try:
            what()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def send_and_lose(path, step, call_id: str) -> None:
    time.sleep(0.1)
    client = world.Client(path, step.token)
    client.send_call("mutate_workflow_db", INSERT, call_id=call_id)
    with pytest.raises(ConnectionError):
        client.receive()


def rows_of(step) -> int:
    with sqlite3.connect(places_of(step.session.workflow).database) as raw:
        count = raw.execute("SELECT count(*) FROM notes").fetchone()[0]
    raw.close()
    return count


def test_killed_between_effect_and_answer_the_effect_is_read_back_once(step):
    call_id = uuid7()
    with server_that_dies(step, lambda: setattr(journal.Journal, "append", die)) as path:
        send_and_lose(path, step, str(call_id))
    assert Receipt.objects.get(pk=call_id).state == "intent"
    assert receipts.settle(step.session.attempt_id) == []
    receipt = Receipt.objects.get(pk=call_id)
    assert (receipt.state, receipt.result["changes"]) == ("applied", 1)
    assert rows_of(step) == 1
    assert [row.outcome for row in ToolCall.objects.all()] == ["applied"]


def test_killed_before_the_effect_it_is_known_never_to_have_been_sent(step):
    call_id = uuid7()
    with server_that_dies(step, lambda: setattr(writing, "_run", die)) as path:
        send_and_lose(path, step, str(call_id))
    assert receipts.settle(step.session.attempt_id) == []
    assert Receipt.objects.get(pk=call_id).state == "not_sent"
    assert rows_of(step) == 0


def test_killed_before_the_intent_nothing_is_known_and_nothing_happened(step):
    call_id = uuid7()
    with server_that_dies(step, lambda: setattr(receipts, "intend", die)) as path:
        send_and_lose(path, step, str(call_id))
    assert receipts.settle(step.session.attempt_id) == []
    assert not Receipt.objects.exists()
    assert rows_of(step) == 0


def test_the_next_attempt_reads_what_the_lost_one_did_and_sending_it_again_does_nothing(step):
    call_id = str(uuid7())
    with server_that_dies(step, lambda: setattr(journal.Journal, "append", die)) as path:
        send_and_lose(path, step, call_id)
    world.end(step.session, "worker_lost")
    again = world.open_step(step.session.parent)
    with world.client_of(again, fence=2) as client:
        assert client.call("read_receipt", {"call_id": call_id})["result"]["outcome"] == "applied"
        assert client.call("mutate_workflow_db", INSERT, call_id=call_id)["error"]["code"] == "call_conflict"
    assert rows_of(step) == 1


def test_answered_calls_survive_the_death_of_the_process_and_the_chain_is_whole(step):
    with server_that_dies(step, lambda: None) as path:
        time.sleep(0.1)
        client = world.Client(path, step.token)
        for _ in range(5):
            assert client.mutate("INSERT INTO notes (who) VALUES ('x')")["success"]
    world.end(step.session, "worker_lost")
    verdict = ledger.verify(step.session.pk)
    assert (verdict.ok, verdict.sealed, verdict.rows) == (True, True, 5)
    assert set(Receipt.objects.values_list("state", flat=True)) == {"applied"}


def dies_before_the_row(journal_: journal.Journal, line: bytes) -> None:
    die()


def dies_behind_the_row(journal_: journal.Journal, line: bytes) -> None:
    os.write(journal_._file, line)
    die()


@pytest.mark.parametrize("dies", [dies_before_the_row, dies_behind_the_row])
@pytest.mark.parametrize("state", ["intent", "unknown"])
def test_who_settles_and_dies_leaves_no_chain_that_can_be_sealed_without_the_row(step, dies, state):
    call_id = uuid7()
    with server_that_dies(step, lambda: setattr(journal.Journal, "append", die)) as path:
        send_and_lose(path, step, str(call_id))
    Receipt.objects.filter(pk=call_id).update(state=state)

    def settle() -> None:
        journal.Journal._write = dies
        receipts.settle(step.session.attempt_id)

    in_a_child_that_dies(settle)
    world.end(step.session, "worker_lost")
    assert [(row.call_id, row.outcome) for row in ToolCall.objects.all()] == [(call_id, "applied")]
    verdict = ledger.verify(step.session.pk)
    assert (verdict.ok, verdict.sealed, verdict.rows) == (True, True, 1)
    assert Receipt.objects.get(pk=call_id).state == "applied"


def test_settling_twice_and_from_two_sides_tells_the_same_once(step):
    call_id = uuid7()
    with server_that_dies(step, lambda: setattr(journal.Journal, "append", die)) as path:
        send_and_lose(path, step, str(call_id))
    world.end(step.session, "worker_lost")

    def settle() -> None:
        try:
            receipts.settle(step.session.attempt_id)
            closing.finish(step.session.pk)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=settle) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ToolCall.objects.count() == 1
    assert ledger.verify(step.session.pk).ok


def test_a_mutation_in_flight_when_the_endpoint_closes_is_unknown_then_settled_for_good(step):
    """It waits for a lock while the attempt ends; when the lock is free again it must not apply any more."""
    call_id = uuid7()
    holder = sqlite3.connect(places_of(step.session.workflow).database, isolation_level=None)
    with world.listening(step) as (tools, path):
        client = world.Client(path, step.token)
        assert client.query("SELECT 1")["success"]
        holder.execute("BEGIN IMMEDIATE")
        client.send_call("mutate_workflow_db", INSERT, call_id=str(call_id))
        end = time.monotonic() + 10
        while not Receipt.objects.exists() and time.monotonic() < end:
            time.sleep(0.01)
        tools.close()
        with pytest.raises(ConnectionError):
            client.receive()
        assert Receipt.objects.get().state == "intent"
        holder.execute("ROLLBACK")
        holder.close()
        world.end(step.session)
    known = Receipt.objects.get().state
    assert known in ("applied", "not_sent")
    time.sleep(0.5)
    assert rows_of(step) == (known == "applied")
    assert ledger.verify(step.session.pk).ok
    assert ToolCall.objects.filter(call_id=call_id).count() == 1


def test_a_worker_that_lost_its_lease_changes_nothing(step):
    with world.listening(step, fence=1) as (_, path):
        client = world.Client(path, step.token)
        assert client.mutate("INSERT INTO notes (who) VALUES ('first')")["success"]
        with world.listening(world.open_step(step.session.parent, step_id="next"), fence=2):
            answer = client.mutate("INSERT INTO notes (who) VALUES ('zombie')")
    assert answer["error"]["code"] == "lease_lost"
    assert rows_of(step) == 1
    assert not OwnershipDiagnostic.objects.exists()


def test_after_a_session_has_ended_no_new_intent_of_it_can_appear(step):
    """What settles an ended session sees every intent there will ever be."""
    from apps.tools import identity
    from apps.tools.work import Databases, Work

    facts = identity.find(step.session.pk)
    parent = identity.find(step.session.parent_id)
    assert facts is not None
    assert parent is not None
    work = Work(
        uuid7(), "mutate_workflow_db", "d" * 64, facts, parent, step.session.workflow.team_id, None, Databases()
    )
    world.end(step.session)
    assert receipts.intend(work) is False
    assert not Receipt.objects.exists()


def test_a_database_that_is_locked_keeps_no_other_workflows_ledger_from_its_seal(monkeypatch):
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    made = [world.open_step(world.open_run(world.make_workflow(slug=f"flow-{number}"))) for number in range(3)]
    sealed = ToolSession.objects.filter(sealed=True)
    for step in made:
        own, now = step.session, timezone.now()
        facts = {"session": own, "workflow_id": own.workflow_id, "attempt_id": own.attempt_id}
        Receipt.objects.create(id=uuid7(), tool="mutate_workflow_db", state="intent", made_at=now, **facts)
    ToolSession.objects.update(state="ended", ended_at=timezone.now())
    path = places_of(made[0].session.workflow).database
    with closing_(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # as for as long as a migration takes
        closing.finish_ended()
        assert [sealed.filter(pk=one.session.pk).exists() for one in made] == [False, True, True]
        other.execute("ROLLBACK")
    closing.finish_ended()
    assert not ToolSession.objects.filter(sealed=False).exists()
