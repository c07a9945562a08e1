"""An import that is killed between its parts is whole or nothing to who comes next; a slow one holds up nobody else."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import zipfile
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, connections, transaction

from apps.accounts.models import Team
from apps.tools import workflow_db
from apps.tools.errors import MigrationRefused
from apps.tools.workflow_db import migrations
from apps.workflows import gate, importing, places, tree, unfinished
from apps.workflows.actions import import_workflow
from apps.workflows.errors import ImportRefused
from apps.workflows.models import Workflow
from tests.factories import document, make_team, make_workflow, step
from tests.runs.workers import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.databases]

# The parts of an import, by what a process that is killed right after one has done.
PARTS = {
    "begun": (tree.Swap, "_write_down"),
    "migrated": (tree.Swap, "_look"),
    "code moved": (tree, "_move"),
    "swapped": (tree.Swap, "apply"),
    "committed": (importing, "_write_rows"),
}
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c;"
FIRST = "CREATE TABLE a (x); INSERT INTO a VALUES (1);"
SECOND = "DROP TABLE a; CREATE TABLE b (x);"


def zipped(raw, **migrations: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("workflow.json", json.dumps(raw))
        archive.writestr("code/hello/main.py", "new")
        archive.writestr("requirements.txt", "six\n")
        archive.writestr("learnings/hello/more.md", "more")
        for name, sql in migrations.items():
            archive.writestr(f"db/migrations/{name}.sql", sql)
    return out.getvalue()


def cut_import(after: str, cast, sent: bytes) -> None:
    """The same import in a process of its own, that is ended as by `kill -9` right after one of its parts."""
    connections.close_all()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            _die_after(*PARTS[after])
            import_workflow(cast.team, cast.editor, sent)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def _die_after(holder: Any, name: str) -> None:
    real = getattr(holder, name)

    def cut(*given: Any) -> None:
        real(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(holder, name, cut)


def state(workflow) -> dict[str, object]:
    """The three stores, as a reader finds them."""
    workflow.refresh_from_db()
    where = places.places_of(workflow)
    root = where.root
    return {
        "title": workflow.title,
        "revision": workflow.revision,
        "files": sorted(
            (path.relative_to(root).as_posix(), path.read_bytes())
            for top in (where.code, where.learnings, where.migrations, where.requirements)
            for path in ([top] if top.is_file() else top.rglob("*"))
            if path.is_file()
        ),
        "tables": [table["name"] for table in workflow_db.describe(workflow)["tables"]],
        "left over": [path.name for path in [*root.glob(tree.NOTE), *root.parent.glob(".staging-*")]],
    }


@pytest.fixture
def cast():
    return make_team()


@pytest.fixture
def workflow(cast):
    files = {"code/hello/main.py": "old", "db/migrations/m0001.sql": FIRST}
    return make_workflow(cast.team, cast.editor, document("cut", title="Before"), files)


AFTER = document("cut", title="After", steps=[step(), step("second")])


@pytest.mark.parametrize("point", ["begun", "migrated", "code moved", "swapped"])
def test_killed_before_its_commit_it_changed_nothing(cast, workflow, point):
    before = state(workflow)
    cut_import(point, cast, zipped(AFTER, m0002=SECOND))
    assert state(workflow)["left over"], "there is something to mend"
    with unfinished.shared(workflow):
        assert state(workflow) == before


def test_killed_after_its_commit_it_is_ended_with_all_of_its_migrations(cast, workflow):
    cut_import("committed", cast, zipped(AFTER, m0002=SECOND))
    assert state(workflow)["tables"] == ["a"]
    assert unfinished.mend_all() == 1
    after = state(workflow)
    assert (after["title"], after["revision"], after["tables"], after["left over"]) == ("After", 2, ["b"], [])
    assert ("code/hello/main.py", b"new") in after["files"]
    assert [old.is_dir() for old in (places.places_of(workflow).root / "replaced").iterdir()] == [True]


@pytest.mark.parametrize("point", ["begun", "migrated", "swapped"])
def test_killed_before_the_commit_of_a_new_workflow_it_leaves_nothing(cast, point):
    cut_import(point, cast, zipped(AFTER, m0001=FIRST))
    assert unfinished.mend_all() == 1
    assert not Workflow.objects.exists()
    assert list((places.data_places().root / "workspaces" / str(cast.team.pk)).iterdir()) == []


def test_the_next_import_mends_what_the_one_before_left(cast, workflow):
    cut_import("swapped", cast, zipped(AFTER, m0002="CREATE TABLE never (x);"))
    import_workflow(cast.team, cast.editor, zipped(AFTER, m0002=SECOND))
    after = state(workflow)
    assert (after["title"], after["tables"], after["left over"]) == ("After", ["b"], [])


def test_an_old_staging_folder_that_a_note_names_is_kept(cast, workflow, monkeypatch):
    before = state(workflow)
    cut_import("swapped", cast, zipped(AFTER, m0002=SECOND))
    monkeypatch.setattr(importing, "KEEP_S", -1)
    make_workflow(cast.team, cast.editor, document("another"))
    unfinished.mend_all()
    assert state(workflow) == before


def test_a_migration_that_fails_leaves_all_three_as_they_were(cast, workflow):
    before = state(workflow)
    with pytest.raises(MigrationRefused, match=r"m0003.sql, statement 1"):
        import_workflow(cast.team, cast.editor, zipped(AFTER, m0002=SECOND, m0003="nonsense;"))
    assert state(workflow) == before


def test_rows_that_cannot_be_written_take_the_migrations_and_their_snapshot_back(cast, workflow, monkeypatch):
    before, real = state(workflow), importing._write_rows

    def fail(*given):
        with transaction.atomic():
            real(*given)
            raise ImportRefused("the part broke. Nothing was imported.")

    monkeypatch.setattr(importing, "_write_rows", fail)
    with pytest.raises(ImportRefused, match="the part broke"):
        import_workflow(cast.team, cast.editor, zipped(AFTER, m0002=SECOND))
    assert state(workflow) == before
    assert list(places.places_of(workflow).snapshots.iterdir()) == []


def test_what_the_workflows_own_database_does_not_take_is_said_and_done_before_the_next_step(
    cast, workflow, monkeypatch
):
    real = importing._write_rows

    def then_shut(*given):
        revision = real(*given)
        opened.raw.execute("ROLLBACK")  # as when its disk is full: there is no transaction to commit
        return revision

    made = migrations.Connection

    def remember(*given, **named):
        nonlocal opened
        opened = made(*given, **named)
        return opened

    opened = None
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "Connection", remember)
        patched.setattr(importing, "_write_rows", then_shut)
        with pytest.raises(ImportRefused, match="is imported as revision 2, but its own database") as told:
            import_workflow(cast.team, cast.editor, zipped(AFTER, m0002=SECOND))
    assert (told.value.status, told.value.code) == (503, "migrations_pending")
    assert state(workflow)["tables"] == ["a"]
    with unfinished.shared(workflow):
        after = state(workflow)
    assert (after["title"], after["tables"], after["left over"]) == ("After", ["b"], [])


def test_a_slow_migration_holds_no_lock_of_the_platform_and_has_one_bound_for_all_its_statements(
    cast, workflow, monkeypatch
):
    monkeypatch.setattr(migrations, "SECONDS", 3.0)
    before, refused = state(workflow), []

    def slow() -> None:
        try:
            import_workflow(cast.team, cast.editor, zipped(AFTER, m0002=f"{ENDLESS}{ENDLESS}"))
        except MigrationRefused as wrong:
            refused.append(str(wrong))
        finally:
            connections.close_all()

    importer = threading.Thread(target=slow)
    importer.start()
    try:
        until(lambda: tree.note_of(places.places_of(workflow)).exists())
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA busy_timeout=0")  # whoever held the lock would be told of at once
        for _ in range(20):
            Team.objects.filter(pk=cast.team.pk).update(name="written meanwhile")
        assert make_workflow(cast.team, cast.editor, document("another")).revision == 1
        assert importer.is_alive()
        with pytest.raises(gate.GivenUp), unfinished.shared(workflow, lambda: True):
            pass
        assert tree.note_of(places.places_of(workflow)).exists(), "no other process mends what is at work"
        assert unfinished.mend_all() == 0
    finally:
        importer.join()
        connection.close()
    assert refused
    assert "m0002.sql, statement 1: The migrations of one import have 3 s, which were over" in refused[0]
    assert state(workflow) == before


def test_rows_without_end_are_not_gathered(cast, workflow, monkeypatch):
    monkeypatch.setattr(migrations, "SECONDS", 1.0)
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT zeroblob(1000000) FROM c;"
    with pytest.raises(MigrationRefused, match="which were over"):
        import_workflow(cast.team, cast.editor, zipped(AFTER, m0002=endless))
