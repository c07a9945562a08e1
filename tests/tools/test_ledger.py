"""The ledger's chain: a row changed, added or missing fails the check; the journal outlives its writer."""

from __future__ import annotations

import io
import json
import os
import stat

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from apps.tools import closing, ledger
from apps.tools.errors import JournalClosed
from apps.tools.journal import Entry, Journal, row_hmac
from apps.tools.models import LedgerSeal, Receipt, ToolCall, ToolSession
from engine.ids import uuid7
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]
FIELDS = {
    "call_id": uuid7,
    "workflow_id": uuid7,
    "run_id": uuid7,
    "attempt_id": uuid7,
    "step_id": lambda: "other",
    "tool": lambda: "query_workflow_db2",
    "argument_digest": lambda: "0" * 64,
    "verdict": lambda: "not_owner",
    "outcome": lambda: "unknown",
    "error_code": lambda: "x",
    "duration_us": lambda: 123_456_789,
    "previous_hmac": lambda: "0" * 64,
    "hmac": lambda: "0" * 64,
}


@pytest.fixture
def session():
    """An ended session with six rows, sealed."""
    step = world.open_step(world.open_run(world.make_workflow()))
    with world.client_of(step) as client:
        for number in range(6):
            client.query(f"SELECT {number}")
    world.end(step.session)
    assert ledger.verify(step.session.pk).ok
    return step.session


def entry(session, n=0) -> Entry:
    return Entry(
        str(uuid7()), str(session.pk), str(session.pk), str(uuid7()), "", "", "", "t", "d", "allowed", "", "", n, 0
    )


@pytest.mark.parametrize("seq", [1, 3, 6])
def test_each_changed_field_is_found(session, seq):
    row = ToolCall.objects.filter(session=session, seq=seq)
    before = row.values().get()
    unseen = []
    for field, other in FIELDS.items():
        row.update(**{field: other()})
        if ledger.verify(session.pk).ok:
            unseen.append(field)
        row.update(**{field: before[field]})
    assert unseen == []
    assert ledger.verify(session.pk).ok


def test_another_time_or_authority_is_found(session):
    row = ToolCall.objects.filter(session=session, seq=2)
    before = row.get().started_at
    row.update(started_at=before.replace(microsecond=(before.microsecond + 1) % 1_000_000))
    assert not ledger.verify(session.pk).ok
    row.update(started_at=before)
    assert ledger.verify(session.pk).ok
    row.update(authority=session)
    assert not ledger.verify(session.pk).ok


@pytest.mark.parametrize("seq", [1, 3, 6])
def test_a_missing_row_is_found(session, seq):
    ToolCall.objects.filter(session=session, seq=seq).delete()
    assert not ledger.verify(session.pk).ok


def test_a_chain_cut_short_with_its_seal_rewritten_is_found(session):
    ToolCall.objects.filter(session=session, seq=6).delete()
    last = ToolCall.objects.get(session=session, seq=5)
    LedgerSeal.objects.filter(session=session).update(rows=5, last_hmac=last.hmac)
    assert "the seal was changed" in ledger.verify(session.pk).problems


def test_a_seal_taken_away_is_found(session):
    LedgerSeal.objects.all().delete()
    assert not ledger.verify(session.pk).ok


def test_an_applied_change_without_a_row_is_found_once_the_chain_is_sealed(session):
    change = uuid7()
    Receipt.objects.create(
        pk=change, session=session, workflow_id=session.workflow_id, tool="mutate_workflow_db", state="applied",
        argument_digest="d", made_at=timezone.now(),
    )  # fmt: skip
    assert ledger.verify(session.pk).problems == (f"the applied change {change} has no row",)


def test_a_row_added_at_the_end_is_found_even_if_it_is_chained(session):
    """Whoever writes the database has not the key, which lies outside it."""
    last = ToolCall.objects.get(session=session, seq=6)
    forged = ToolCall.objects.get(pk=last.pk)
    forged.pk, forged.seq, forged.call_id, forged.previous_hmac = None, 7, uuid7(), last.hmac
    forged.hmac = row_hmac(b"a guessed key", 7, last.hmac, ledger.entry_of(forged))
    forged.save(force_insert=True)
    problems = ledger.verify(session.pk).problems
    assert any("row 7" in problem for problem in problems)
    assert any("the seal counts 6" in problem for problem in problems)


def test_two_rows_that_changed_places_are_found(session):
    ToolCall.objects.filter(session=session, seq=2).update(seq=100)
    ToolCall.objects.filter(session=session, seq=3).update(seq=2)
    ToolCall.objects.filter(session=session, seq=100).update(seq=3)
    assert not ledger.verify(session.pk).ok


def test_rows_of_one_session_do_not_pass_in_another(session):
    other = world.open_step(world.open_run(session.workflow)).session
    ToolCall.objects.filter(session=session).update(session=other)
    LedgerSeal.objects.all().delete()
    assert not ledger.verify(other.pk).ok


def test_the_key_lies_in_a_file_outside_the_database_and_is_another_for_each_attempt(session):
    path = settings.PULSE_DATA / "secrets" / "ledger.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ledger.key_of(uuid7()) != ledger.key_of(uuid7())
    assert ledger.key_of(session.attempt_id) == ledger.key_of(session.attempt_id)


def test_an_import_may_be_repeated_and_begun_anew(session):
    again = ledger.chain_of(session.pk).open()
    assert ledger.Import(session.pk, again).run() == 0
    ToolCall.objects.filter(session=session, seq__gt=4).delete()
    assert ledger.Import(session.pk, again).run() == 2
    again.close()
    assert ledger.verify(session.pk).ok


def test_a_sealed_journal_takes_no_row(session):
    opened = ledger.chain_of(session.pk).open()
    with pytest.raises(JournalClosed):
        opened.append(entry(session))
    opened.close()


def test_what_was_not_sealed_when_the_process_died_is_sealed_later(session):
    LedgerSeal.objects.all().delete()
    assert closing.finish_ended() == 0  # taken away, not left out: `verify` tells, and nobody covers it up
    ToolSession.objects.update(sealed=False)
    assert closing.finish_ended() == 1
    assert ledger.verify(session.pk).ok


def test_a_live_session_verifies_without_a_seal():
    step = world.open_step(world.open_run(world.make_workflow()))
    with world.client_of(step) as client:
        client.query("SELECT 1")
    verdict = ledger.verify(step.session.pk)
    assert (verdict.ok, verdict.sealed, verdict.rows) == (True, False, 1)
    assert closing.finish(step.session.pk) is False


def test_a_row_that_was_torn_by_the_death_of_its_writer_is_dropped_and_the_chain_goes_on(session, tmp_path):
    key = b"k" * 32
    journal = Journal(tmp_path / "j", key)
    first = journal.append(entry(session, 1))
    journal.close()
    with open(tmp_path / "j", "ab") as file:
        file.write(b'[2,"half a li')
    journal = Journal(tmp_path / "j", key)
    second = journal.append(entry(session, 2))
    assert (second.seq, second.previous_hmac) == (2, first.hmac)
    assert [row.seq for row, _ in journal.rows()] == [1, 2]
    journal.close()


def test_several_processes_append_to_one_chain(session, tmp_path):
    connections.close_all()
    key = b"k" * 32
    children = []
    for child in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                own = Journal(tmp_path / "j", key)
                for n in range(50):
                    own.append(entry(session, child * 1000 + n))
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    journal = Journal(tmp_path / "j", key)
    rows = [row for row, _ in journal.rows()]
    journal.close()
    assert [row.seq for row in rows] == list(range(1, 201))
    previous = ""
    for row in rows:
        assert (row.previous_hmac, row.hmac) == (previous, row_hmac(key, row.seq, previous, row.entry))
        previous = row.hmac


@given(cut=st.integers(0, 2000))
@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_journal_cut_anywhere_gives_whole_rows_from_its_beginning(session, tmp_path, cut):
    path = tmp_path / f"cut-{uuid7()}"
    journal = Journal(path, b"k")
    for n in range(4):
        journal.append(entry(session, n))
    journal.close()
    os.truncate(path, min(cut, path.stat().st_size))
    journal = Journal(path, b"k")
    kept = [row.seq for row, _ in journal.rows()]
    added = journal.append(entry(session, 9)).seq
    journal.close()
    assert kept == list(range(1, len(kept) + 1))
    assert added == len(kept) + 1


def test_the_command_checks_and_exports(session):
    out = io.StringIO()
    call_command("verify_ledger", session=session.pk, stdout=out)
    assert "1 chains, 6 rows, 0 with faults" in out.getvalue()
    out = io.StringIO()
    call_command("verify_ledger", run=session.run_id, export=True, stdout=out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line.get("seq") for line in lines] == [1, 2, 3, 4, 5, 6, None]
    assert lines[-1]["rows"] == 6
    ToolCall.objects.filter(session=session, seq=3).update(outcome="failed")
    with pytest.raises(CommandError):
        call_command("verify_ledger", stdout=io.StringIO())


def test_the_export_can_be_verified_without_the_database(session):
    key = ledger.key_of(session.attempt_id)
    previous = ""
    *rows, seal = ledger.export(session.pk)
    for row in rows:
        facts = Entry(**{name: row[name] for name in Entry._fields})
        assert row["hmac"] == row_hmac(key, row["seq"], previous, facts)
        previous = row["hmac"]
    assert (seal["rows"], seal["last_hmac"]) == (6, previous)
