"""db/migrations: applied on import, in order, each once, all or none; a snapshot when rows may be lost."""

from __future__ import annotations

import json
import sqlite3

import pytest

from apps.accounts.errors import Refused
from apps.accounts.models import Team
from apps.accounts.roles import Role
from apps.tools import workflow_db
from apps.tools.errors import MigrationRefused
from apps.tools.workflow_db import sql
from apps.workflows import actions as workflows
from apps.workflows.models import Workflow
from apps.workflows.places import places_of
from engine.ids import uuid7
from tests.tools import world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]


@pytest.fixture
def workflow():
    return world.make_workflow(migration="")


def put(workflow, **files: str) -> None:
    folder = places_of(workflow).migrations
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text)


def tables(workflow) -> list[str]:
    return [table["name"] for table in workflow_db.describe(workflow)["tables"]]


def test_files_are_applied_in_the_order_of_their_names_and_once(workflow):
    put(workflow, m0002="INSERT INTO a VALUES (1);", m0001="CREATE TABLE a (x);")
    assert workflow_db.apply_migrations(workflow) == ["m0001.sql", "m0002.sql"]
    assert workflow_db.apply_migrations(workflow) == []
    put(workflow, m0003="INSERT INTO a VALUES (2);")
    assert workflow_db.apply_migrations(workflow) == ["m0003.sql"]
    assert workflow_db.read(workflow, "SELECT x FROM a ORDER BY x")["rows"] == [{"x": 1}, {"x": 2}]


def test_one_that_fails_takes_all_of_them_back_and_names_file_statement_and_fix(workflow):
    put(workflow, m0001="CREATE TABLE a (x);", m0002="INSERT INTO a VALUES (1); INSERT INTO b VALUES (1);")
    with pytest.raises(MigrationRefused) as caught:
        workflow_db.apply_migrations(workflow)
    assert "m0002.sql, statement 2" in caught.value.detail
    assert "no such table: b" in caught.value.detail
    assert "Nothing was applied" in caught.value.detail
    assert tables(workflow) == []


def test_one_that_was_applied_is_never_edited(workflow):
    put(workflow, m0001="CREATE TABLE a (x);")
    workflow_db.apply_migrations(workflow)
    put(workflow, m0001="CREATE TABLE a (x, y);", m0002="CREATE TABLE b (x);")
    with pytest.raises(MigrationRefused, match="applied before with other content"):
        workflow_db.apply_migrations(workflow)
    assert tables(workflow) == ["a"]


def test_everything_a_schema_needs_is_allowed(workflow):
    put(
        workflow,
        m0001="""
        -- tables; with a semicolon in a comment
        CREATE TABLE a (id INTEGER PRIMARY KEY, said TEXT DEFAULT 'x;y');
        CREATE UNIQUE INDEX a_said ON a (said);
        CREATE VIEW v AS SELECT said FROM a;
        CREATE TRIGGER t AFTER INSERT ON a BEGIN
            UPDATE a SET said = upper(said) WHERE id = NEW.id;
        END;
        ALTER TABLE a ADD COLUMN n INTEGER;
        INSERT INTO a (said) VALUES ('semi;colon');
        """,
    )
    workflow_db.apply_migrations(workflow)
    assert workflow_db.read(workflow, "SELECT said FROM v")["rows"] == [{"said": "SEMI;COLON"}]


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE _pulse_receipts;",
        "DELETE FROM _pulse_fences;",
        "CREATE TABLE _pulse_mine (x);",
        "INSERT INTO _pulse_migrations VALUES ('x', 'y', '', '');",
        "ATTACH 'other.sqlite3' AS other;",
        "VACUUM INTO 'copy.sqlite3';",
        "PRAGMA writable_schema=ON;",
        "COMMIT;",
        "BEGIN;",
        "CREATE TABLE a (x",
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM a;",
        "UPDATE sqlite_master SET sql = '';",
    ],
)
def test_what_is_not_a_migrations_business_is_refused(workflow, text):
    put(workflow, m0001="CREATE TABLE kept (x);", m0002=text)
    with pytest.raises(MigrationRefused):
        workflow_db.apply_migrations(workflow)
    assert tables(workflow) == []


def test_a_destructive_one_leaves_a_snapshot_and_a_plain_one_none(workflow):
    put(workflow, m0001="CREATE TABLE a (x); INSERT INTO a VALUES (42);")
    workflow_db.apply_migrations(workflow)
    put(workflow, m0002="ALTER TABLE a ADD COLUMN y;")
    workflow_db.apply_migrations(workflow)
    assert not places_of(workflow).snapshots.exists()
    put(workflow, m0003="-- gone\nDROP TABLE a;")
    workflow_db.apply_migrations(workflow)
    (snapshot,) = places_of(workflow).snapshots.iterdir()
    with sqlite3.connect(snapshot) as raw:
        assert raw.execute("SELECT x FROM a").fetchall() == [(42,)]
    raw.close()
    assert snapshot.stat().st_mode & 0o777 == 0o600
    assert tables(workflow) == []


@pytest.mark.parametrize(
    "text",
    [
        "WITH z AS (SELECT 1) DELETE FROM a WHERE id = 1;",
        "INSERT INTO a VALUES (1, 'lost') ON CONFLICT (id) DO UPDATE SET said = excluded.said;",
        "WITH z AS (SELECT 1) REPLACE INTO a VALUES (1, 'lost');",
        "CREATE TRIGGER t AFTER INSERT ON b BEGIN DELETE FROM a; END; INSERT INTO b VALUES (1);",
        "ALTER TABLE a DROP COLUMN said;",
        'ALTER /* c */ TABLE "a" RENAME COLUMN said TO told;',
        "ALTER TABLE a RENAME TO z; DELETE FROM z;",
        "DROP TABLE A;",
    ],
)
def test_whatever_may_lose_rows_leaves_the_rows_as_they_were_before(workflow, text):
    put(
        workflow,
        m0001="CREATE TABLE a (id INTEGER PRIMARY KEY, said); CREATE TABLE b (x); INSERT INTO a VALUES (1, 'x');",
    )
    workflow_db.apply_migrations(workflow)
    put(workflow, m0002="CREATE TABLE c (x); INSERT INTO c VALUES (1);", m0003=text)
    workflow_db.apply_migrations(workflow)
    (snapshot,) = places_of(workflow).snapshots.iterdir()
    with sqlite3.connect(snapshot) as raw:
        assert raw.execute("SELECT id, said FROM a").fetchall() == [(1, "x")]
        assert raw.execute("SELECT count(*) FROM sqlite_master WHERE name = 'c'").fetchone() == (0,)
    raw.close()


def test_nothing_is_copied_when_no_row_can_be_lost(workflow):
    put(workflow, m0001="CREATE TABLE a (x); CREATE TABLE kept (x); INSERT INTO kept VALUES (1);")
    workflow_db.apply_migrations(workflow)
    put(
        workflow, m0002="DROP TABLE a; CREATE TABLE n (x); INSERT INTO n VALUES (1); DELETE FROM n; SELECT * FROM kept;"
    )
    workflow_db.apply_migrations(workflow)
    assert not places_of(workflow).snapshots.exists()


def test_analyze_is_for_one_table_and_says_so(workflow):
    put(workflow, m0001="CREATE TABLE a (x); CREATE INDEX i ON a (x); ANALYZE a; REINDEX a;")
    workflow_db.apply_migrations(workflow)
    put(workflow, m0002="ANALYZE;")
    with pytest.raises(MigrationRefused, match="name one table: ANALYZE mine"):
        workflow_db.apply_migrations(workflow)


def test_a_script_is_taken_apart_where_sqlite_says_a_statement_ends():
    script = "SELECT ';'; -- ; \nCREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; SELECT 2; END; /* ; */ SELECT 3"
    assert [sql.first_word(each) for each in sql.statements_of(script)] == ["SELECT", "CREATE", "SELECT"]


@pytest.fixture
def folder(tmp_path):
    """A workflow as it travels, with one step that reads and one migration."""
    step = {
        "id": "gate",
        "kind": "scripted",
        "title": "Gate",
        "tools": ["query_workflow_db"],
        "access": {"db": "read"},
    }
    document = {
        "schema_version": 1,
        "code_layout_version": 1,
        "contract_version": "1.0.44",
        "slug": f"brought-{uuid7().hex[-8:]}",
        "title": "Brought",
        "objective": "",
        "plan": {"steps": [step]},
    }
    (tmp_path / "code" / "gate").mkdir(parents=True)
    (tmp_path / "code" / "gate" / "main.py").write_text("print(1)\n")
    (tmp_path / "db" / "migrations").mkdir(parents=True)
    (tmp_path / "db" / "migrations" / "0001_a.sql").write_text("CREATE TABLE a (x);")

    def write(**changes) -> None:
        step.update(changes)
        (tmp_path / "workflow.json").write_text(json.dumps(document))

    write()
    return tmp_path, write


def bring(folder) -> Workflow:
    team = Team.objects.first() or Team.objects.create(slug="bringers", name="Bringers")
    return workflows.import_workflow(team, world.make_user(Role.EDITOR, team), folder)


def test_an_import_applies_what_the_workflow_brings(folder):
    path, _ = folder
    assert tables(bring(path)) == ["a"]
    (path / "db" / "migrations" / "0002_b.sql").write_text("CREATE TABLE b (x);")
    assert tables(bring(path)) == ["a", "b"]


def test_an_import_whose_migration_fails_leaves_nothing_behind(folder):
    path, _ = folder
    (path / "db" / "migrations" / "0001_a.sql").write_text("CREATE TABLE a (x); nonsense;")
    with pytest.raises(MigrationRefused):
        bring(path)
    assert not Workflow.objects.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tools": ["no_such_tool"]}, "no_such_tool"),
        ({"tools": ["query_workflow_db"], "access": {"db": "none"}}, "access.db to be read"),
        ({"tools": ["mutate_workflow_db"], "access": {"db": "read"}}, "access.db to be read-write"),
    ],
)
def test_a_step_that_names_a_tool_it_could_never_call_is_refused(folder, changes, said):
    path, write = folder
    write(**changes)
    with pytest.raises(Refused) as caught:
        bring(path)
    assert said in caught.value.detail
    assert caught.value.fields[0].path.startswith("$.plan.steps[0].tools[0]")
    assert not Workflow.objects.exists()
