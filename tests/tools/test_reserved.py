"""Nothing of a workflow's reaches into the platform's tables inside its database, and receipts never lie."""

from __future__ import annotations

import sqlite3

import pytest

from apps.tools import workflow_db
from apps.tools.errors import Code, MigrationRefused, ToolFailure
from apps.tools.models import Receipt
from apps.tools.workflow_db import database, reserved, writing
from apps.tools.workflow_db.database import Connection, Database
from apps.tools.workflow_db.guard import Mode
from apps.tools.workflow_db.writing import Mark, Statement
from apps.workflows.places import places_of
from engine.ids import uuid7
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]

MINE = "CREATE TABLE mine (id INTEGER PRIMARY KEY, heart_pulse_rate TEXT);"
REACHING = [
    "CREATE TRIGGER evil BEFORE INSERT ON _pulse_receipts BEGIN SELECT RAISE(IGNORE); END;",
    "CREATE TRIGGER evil AFTER UPDATE ON _PULSE_fences BEGIN UPDATE mine SET id = 9; END;",
    "CREATE TEMP TRIGGER evil AFTER INSERT ON main._pulse_migrations BEGIN DELETE FROM mine; END;",
    "CREATE TRIGGER evil AFTER INSERT ON mine BEGIN DELETE FROM _pulse_receipts; END;",
    "CREATE UNIQUE INDEX evil ON _pulse_receipts (run_id);",
    "CREATE VIEW evil AS SELECT * FROM _pulse_receipts;",
    'CREATE TABLE evil (r REFERENCES "_pulse_receipts" (call_id) ON DELETE CASCADE);',
    "CREATE TABLE evil AS SELECT * FROM _pulse_receipts;",
    "ALTER TABLE _pulse_receipts ADD COLUMN x;",
    "ALTER TABLE _pulse_receipts RENAME TO evil;",
    "ALTER TABLE _pulse_receipts RENAME COLUMN state TO st;",
    "CREATE TABLE a (x); ALTER TABLE a RENAME TO _pulse_extra;",
    "CREATE TABLE a (x); ALTER TABLE a RENAME TO _PULSE_extra;",
    "DROP TABLE _pulse_fences;",
]


def applied(workflow, text: str) -> None:
    folder = places_of(workflow).migrations
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "0001.sql").write_text(text)
    workflow_db.apply_migrations(workflow)


@pytest.mark.parametrize("text", REACHING)
def test_a_migration_does_not_reach_the_platforms_tables(text):
    workflow = world.make_workflow(migration="")
    with pytest.raises(MigrationRefused, match="platform's own"):
        applied(workflow, MINE + text)
    with sqlite3.connect(places_of(workflow).database) as raw:
        names = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type <> 'index'")}
    raw.close()
    assert names == {"_pulse_receipts", "_pulse_fences", "_pulse_migrations"}


def test_names_that_only_hold_the_word_are_the_workflows(tmp_path):
    workflow = world.make_workflow(migration="")
    applied(workflow, MINE + "CREATE VIEW my_pulse_view AS SELECT heart_pulse_rate FROM mine;")
    with world.client_of(world.open_step(world.open_run(workflow))) as client:
        assert client.mutate("INSERT INTO mine (heart_pulse_rate) VALUES ('60')")["success"]


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "db" / "workflow.sqlite3"
    database.make(path)
    put(path, MINE)
    with Database(path) as opened:
        yield opened


def put(path, text: str) -> None:
    with sqlite3.connect(path) as raw:
        raw.executescript(text)
    raw.close()


def mark() -> Mark:
    return Mark(uuid7(), uuid7(), "d" * 64, uuid7(), 1)


INSERT = [Statement("INSERT INTO mine DEFAULT VALUES", [None])]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TRIGGER evil BEFORE INSERT ON _pulse_receipts BEGIN SELECT RAISE(IGNORE); END;",
        "CREATE TRIGGER evil AFTER INSERT ON _pulse_fences BEGIN UPDATE _pulse_fences SET fence = 999; END;",
        "CREATE UNIQUE INDEX evil ON _pulse_receipts (run_id);",
        "ALTER TABLE _pulse_receipts ADD COLUMN x;",
        "CREATE TABLE a (x); ALTER TABLE a RENAME TO _pulse_extra;",
        "ALTER TABLE _pulse_receipts RENAME TO gone;",
    ],
)
def test_a_database_that_was_meddled_with_changes_nothing_and_settles_nothing(db, text):
    done = mark()
    writing.mutate(db, INSERT, done)  # its connection is open, its statements are compiled
    put(db.path, text)
    for refused in (
        lambda: writing.mutate(db, INSERT, mark()),
        lambda: writing.settle(db, done),
        lambda: writing.read_receipt(db, done.call_id),
    ):
        with pytest.raises(ToolFailure) as caught:
            refused()
        assert caught.value.code == Code.DATABASE_ALTERED
    with sqlite3.connect(db.path) as raw:
        assert raw.execute("SELECT count(*) FROM mine").fetchone() == (1,)
    raw.close()


def test_no_trigger_runs_inside_a_statement_of_the_platform(db):
    put(db.path, "CREATE TRIGGER evil AFTER INSERT ON _pulse_fences BEGIN DELETE FROM mine; END;")
    connection = Connection(db.path, mode=Mode.WRITE)
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        connection.for_platform(connection.statements.raise_fence, (str(uuid7()), 1))
    connection.close()
    database.raise_fence(db.path, uuid7(), 2)
    with sqlite3.connect(db.path) as raw:
        assert raw.execute("SELECT count(*) FROM _pulse_fences").fetchone() == (0,)
    raw.close()


def test_what_the_platform_makes_is_what_it_expects(db):
    assert reserved.faults(db.writer.for_platform(db.writer.statements.reserved).fetchall()) == []


def test_an_applied_mutation_is_never_read_back_as_not_sent_from_a_database_that_was_meddled_with():
    workflow = world.make_workflow()
    run = world.open_run(workflow)
    step = world.open_step(run)
    with world.client_of(step) as client:
        call_id = client.send_call("mutate_workflow_db", {"sql": "INSERT INTO notes (who) VALUES ('once')"})
        assert client.receive()["success"]
        put(places_of(workflow).database, "ALTER TABLE _pulse_receipts RENAME TO gone;")
        answer = client.call("read_receipt", {"call_id": call_id})
        assert answer["error"]["code"] == "database_altered"
        refused = client.mutate("INSERT INTO notes (who) VALUES ('twice')")
        assert refused["error"]["code"] == "database_altered"
        unanswered = Receipt.objects.get(pk=call_id)
        unanswered.pk, unanswered.state = uuid7(), Receipt.State.INTENT  # as after a crash before the answer
        unanswered.save(force_insert=True)
    world.end(step.session)
    assert Receipt.objects.get(pk=call_id).state == Receipt.State.APPLIED
    assert Receipt.objects.get(pk=unanswered.pk).state == Receipt.State.UNKNOWN
