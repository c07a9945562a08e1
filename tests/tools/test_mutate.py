"""mutate_workflow_db: rows change, nothing else; all of a call or none; its receipt in the same transaction."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from apps.tools.errors import Code, ToolFailure
from apps.tools.workflow_db import database, reading, writing
from apps.tools.workflow_db.database import Database
from apps.tools.workflow_db.writing import Mark, Statement
from engine.ids import uuid7

SCHEMA = """
CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, who TEXT NOT NULL UNIQUE, n INTEGER CHECK (n < 1000));
CREATE TABLE log (said TEXT);
CREATE TRIGGER told AFTER INSERT ON notes BEGIN INSERT INTO log VALUES (NEW.who); END;
"""


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "db" / "workflow.sqlite3"
    database.make(path)
    raw = sqlite3.connect(path)
    raw.executescript(SCHEMA)
    raw.close()
    with Database(path) as opened:
        yield opened


def mark(*, run_id=None, fence=None, call_id=None) -> Mark:
    return Mark(call_id or uuid7(), uuid7(), "d" * 64, run_id, fence)


def mutate(db, sql, *params, **more):
    return writing.mutate(db, [Statement(sql, [list(params)])], mark(**more))


def refusal(db, *statements, **more) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        writing.mutate(db, [Statement(sql, [None]) for sql in statements], mark(**more))
    return caught.value


def count(db, table="notes") -> int:
    return reading.query(db, f"SELECT count(*) AS c FROM {table}")["rows"][0]["c"]


def receipts(db) -> int:
    with sqlite3.connect(db.path) as raw:
        found = raw.execute("SELECT count(*) FROM _pulse_receipts").fetchone()[0]
    raw.close()
    return found


def test_it_says_how_many_rows_changed(db):
    assert mutate(db, "INSERT INTO notes (who, n) VALUES (?, ?)", "a", 1) == {"changes": 1, "last_row_id": 1}
    assert mutate(db, "INSERT INTO notes (who) VALUES ('b'), ('c')")["changes"] == 2
    assert mutate(db, "UPDATE notes SET n = 5")["changes"] == 3
    assert mutate(db, "DELETE FROM notes WHERE who = 'nobody'")["changes"] == 0
    assert mutate(db, "REPLACE INTO notes (id, who) VALUES (1, 'z')")["changes"] == 1
    assert count(db, "log") == 4


def test_returning_gives_the_rows(db):
    answer = mutate(db, "INSERT INTO notes (who) VALUES ('a'), ('b') RETURNING id, who")
    assert answer["returned"] == [{"id": 1, "who": "a"}, {"id": 2, "who": "b"}]
    assert answer["changes"] == 2


LONG = "replace(hex(zeroblob(700000)), '0', char(9))"  # 1.4 million characters, which JSON writes as two each


@pytest.mark.parametrize(
    "statements",
    [
        ["INSERT INTO log SELECT hex(zeroblob(900000)) FROM (VALUES (1), (2), (3), (4)) RETURNING said"],
        [f"INSERT INTO log VALUES ({LONG}), ({LONG}) RETURNING said"],
        [f"INSERT INTO log VALUES ({LONG}) RETURNING said"] * 2,
    ],
    ids=["one", "characters", "several"],
)
def test_what_no_answer_could_tell_is_not_applied(db, statements):
    failed = refusal(db, *statements)
    assert (failed.code, failed.message.partition(" Nothing was ")[2]) == (Code.RESULT_TOO_LARGE, "changed.")
    assert (count(db, "log"), receipts(db)) == (0, 0)


def test_statements_of_one_call_are_applied_together(db):
    answer = writing.mutate(
        db,
        [
            Statement("INSERT INTO notes (who) VALUES (?)", [["a"]]),
            Statement("UPDATE notes SET n = :n WHERE who = :who", [{"n": 3, "who": "a"}]),
        ],
        mark(),
    )
    assert answer["changes"] == 2
    assert [each["changes"] for each in answer["statements"]] == [1, 1]


def test_one_statement_runs_for_each_of_its_parameter_sets(db):
    sets = [[f"who{n}", n] for n in range(900)]
    answer = writing.mutate(db, [Statement("INSERT INTO notes (who, n) VALUES (?, ?)", sets, many=True)], mark())
    assert answer == {"changes": 900}


@pytest.mark.parametrize(
    "last",
    [
        "INSERT INTO notes (who) VALUES ('a')",
        "INSERT INTO notes (who) VALUES (NULL)",
        "UPDATE notes SET n = 5000",
        "nonsense",
    ],
)
def test_one_statement_that_fails_takes_all_of_them_back_and_leaves_no_receipt(db, last):
    failed = refusal(db, "INSERT INTO notes (who) VALUES ('a')", last)
    assert failed.code == Code.SQL_ERROR
    assert count(db) == count(db, "log") == receipts(db) == 0


def test_an_error_names_its_statement_and_the_likely_fix(db):
    failed = refusal(db, "INSERT INTO notes (who) VALUES ('a')", "INSERT INTO notes (who) VALUES ('a')")
    assert "statement 2 of 2" in failed.message
    assert "ON CONFLICT" in failed.hint


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE x (a)",
        "CREATE TEMP TABLE x (a)",
        "CREATE INDEX i ON notes (n)",
        "CREATE TRIGGER t AFTER INSERT ON notes BEGIN DELETE FROM log; END",
        "DROP TABLE notes",
        "ALTER TABLE notes RENAME TO other",
        "ATTACH ':memory:' AS x",
        "VACUUM",
        "PRAGMA foreign_keys=OFF",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT a",
        "SELECT 1",
        "INSERT INTO _pulse_receipts SELECT * FROM _pulse_receipts",
        "DELETE FROM _pulse_receipts",
        "UPDATE _pulse_fences SET fence = 0",
        "INSERT INTO notes (who) SELECT call_id FROM _pulse_receipts",
        "WITH x AS (SELECT 1) UPDATE _PULSE_fences SET fence = 0",
        "DELETE FROM sqlite_sequence",
        "UPDATE sqlite_master SET sql = ''",
        "INSERT INTO notes (who) VALUES (readfile('/etc/passwd'))",
        "INSERT INTO notes (who) VALUES ('x'); DELETE FROM log",
    ],
)
def test_structure_reserved_tables_and_transactions_are_not_a_callers(db, sql):
    mutate(db, "INSERT INTO notes (who) VALUES ('kept')")
    assert refusal(db, sql).code == Code.SQL_ERROR
    assert (count(db), receipts(db)) == (1, 1)


def test_a_receipt_is_written_with_the_effect(db):
    given = mark(run_id=uuid7(), fence=1)
    result = writing.mutate(db, [Statement("INSERT INTO notes (who) VALUES ('a')", [None])], given)
    kept = writing.read_receipt(db, given.call_id)
    assert kept is not None
    assert (kept.applied, kept.result, kept.argument_digest) == (True, result, "d" * 64)


def test_an_id_is_applied_once(db):
    call_id = uuid7()
    mutate(db, "INSERT INTO notes (who) VALUES ('a')", call_id=call_id)
    assert refusal(db, "INSERT INTO notes (who) VALUES ('b')", call_id=call_id).code == Code.CALL_CONFLICT
    assert count(db) == 1


def test_a_call_that_was_settled_as_never_sent_can_never_apply(db):
    late = mark()
    assert writing.settle(db, late).applied is False
    with pytest.raises(ToolFailure) as caught:
        writing.mutate(db, [Statement("INSERT INTO notes (who) VALUES ('late')", [None])], late)
    assert caught.value.code == Code.CALL_CONFLICT
    assert count(db) == 0
    assert writing.settle(db, late).applied is False


def test_a_writer_with_an_old_fence_changes_nothing(db):
    run = uuid7()
    mutate(db, "INSERT INTO notes (who) VALUES ('a')", run_id=run, fence=1)
    database.raise_fence(db.path, run, 3)
    assert refusal(db, "INSERT INTO notes (who) VALUES ('b')", run_id=run, fence=2).code == Code.LEASE_LOST
    mutate(db, "INSERT INTO notes (who) VALUES ('c')", run_id=run, fence=3)
    mutate(db, "INSERT INTO notes (who) VALUES ('d')", run_id=run, fence=4)
    assert refusal(db, "INSERT INTO notes (who) VALUES ('e')", run_id=run, fence=3).code == Code.LEASE_LOST
    mutate(db, "INSERT INTO notes (who) VALUES ('other')", run_id=uuid7(), fence=1)
    assert count(db) == 4


def test_a_fence_never_goes_down(db):
    run = uuid7()
    database.raise_fence(db.path, run, 5)
    database.raise_fence(db.path, run, 2)
    assert refusal(db, "DELETE FROM notes", run_id=run, fence=4).code == Code.LEASE_LOST


def test_a_database_that_stays_locked_is_busy_and_nothing_was_done(db, monkeypatch):
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    holder = sqlite3.connect(db.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with Database(db.path) as other:
        assert refusal(other, "INSERT INTO notes (who) VALUES ('a')").code == Code.BUSY
    holder.execute("ROLLBACK")
    holder.close()
    assert count(db) == 0


def test_a_mutation_that_takes_too_long_is_taken_back(db, monkeypatch):
    monkeypatch.setattr(writing, "TIME_LIMIT_S", 0.3)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO log SELECT i FROM n"
    assert refusal(db, endless).code == Code.LIMIT_EXCEEDED
    assert count(db, "log") == receipts(db) == 0


def test_a_trigger_of_the_workflow_cannot_reach_the_platforms_tables(db):
    raw = sqlite3.connect(db.path)
    raw.execute("CREATE TRIGGER spy AFTER INSERT ON log BEGIN DELETE FROM _pulse_receipts; END")
    raw.close()
    assert refusal(db, "INSERT INTO log VALUES ('x')").code == Code.DATABASE_ALTERED


def test_writers_in_many_threads_lose_nothing(db):
    def write(name: str) -> None:
        with Database(db.path) as own:
            for n in range(50):
                mutate(own, "INSERT INTO notes (who) VALUES (?)", f"{name}-{n}")

    threads = [threading.Thread(target=write, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(db) == receipts(db) == 400
