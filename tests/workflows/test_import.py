"""What an import takes over, what it drops, and what an update leaves as it is."""

from __future__ import annotations

import contextlib
import stat
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError

from apps.accounts.models import Audit
from apps.workflows import definition, importing, places, portable
from apps.workflows.actions import import_workflow
from apps.workflows.bundle import Report
from apps.workflows.errors import DocumentNotValid, ImportRefused
from apps.workflows.models import PlanRevision, Variable, Workflow
from engine.digests import code_tree
from tests.factories import default_files, document, make_team, make_workflow, step, write_folder
from tests.workflows import archives

pytestmark = pytest.mark.django_db


def test_a_folder_becomes_a_workflow_owned_by_its_importer(tmp_path):
    cast = make_team()
    raw = document("checks", variables=[{"name": "URL", "value": "https://example.test"}])
    files = {
        **default_files(raw),
        "code/shared/util.py": "X = 1\n",
        "requirements.txt": "",
        "learnings/_global/a.md": "a",
    }
    workflow = import_workflow(cast.team, cast.editor, write_folder(tmp_path / "sent", raw, files))
    read = definition.load(workflow)
    where = places.places_of(workflow)
    assert (workflow.slug, workflow.owner, read.revision) == ("checks", cast.editor, 1)
    assert read.resolve_group("default") == {"URL": "https://example.test"}
    assert (where.code / "shared" / "util.py").read_text() == "X = 1\n"
    assert (where.learnings / "_global" / "a.md").read_text() == "a"
    assert where.requirements.is_file()


def test_an_archive_may_have_everything_in_one_folder():
    cast = make_team()
    import io
    import json
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("repo-main/workflow.json", json.dumps(document("wrapped")))
        archive.writestr("repo-main/code/hello/main.py", "print(1)\n")
        archive.writestr("__MACOSX/repo-main/._workflow.json", "x")
    workflow = import_workflow(cast.team, cast.editor, out.getvalue())
    assert (places.places_of(workflow).code / "hello" / "main.py").is_file()


def test_what_a_workflow_has_no_use_for_is_dropped_and_named():
    cast = make_team()
    report = Report()
    unwanted = {
        ".git/hooks/post-checkout": "#!/bin/sh\n",
        ".git/config": "[core]\n\tfsmonitor = evil\n",
        "code/hello/__pycache__/main.cpython-311.pyc": b"\0",
        "code/hello/x.pth": "import os\n",
        "code/sitecustomize.py": "",
        "code/hello/usercustomize.py": "",
        "db/workflow.sqlite3": b"SQLite",
        "db/migrations/readme.txt": "",
        "runs/1/out.txt": "",
        "README.md": "hello",
    }
    workflow = import_workflow(
        cast.team, cast.editor, archives.zipped({"code/hello/main.py": "", **unwanted}), report=report
    )
    assert sorted(report.dropped) == sorted(unwanted)
    root = places.places_of(workflow).root
    left = {path.name for path in root.rglob("*")}
    assert not left & {".git", "__pycache__", "x.pth", "sitecustomize.py", "usercustomize.py", "README.md"}


def test_a_git_folder_is_not_even_looked_into(tmp_path):
    cast = make_team()
    raw = document()
    folder = write_folder(tmp_path / "sent", raw, {**default_files(raw), ".git/config": "x"})
    (folder / ".git" / "link").symlink_to("/etc/passwd")
    report = Report()
    import_workflow(cast.team, cast.editor, folder, report=report)
    assert report.dropped == [".git/"]


def test_files_and_folders_are_for_the_steps_group_and_nobody_else():
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, files={"code/hello/run.sh": "#!/bin/sh\n"})
    where = places.places_of(workflow)
    gid = places.runner_gid()

    def facts(path):
        found = path.stat()
        return stat.S_IMODE(found.st_mode), found.st_gid if gid is not None else None

    assert facts(where.code) == (0o750, gid)
    assert facts(where.code / "hello") == (0o770, gid)
    assert facts(where.code / "hello" / "main.py") == (0o660, gid)
    assert facts(where.learnings) == (0o770, gid)
    assert stat.S_IMODE(where.database.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(where.root.stat().st_mode) == 0o711


def test_an_executable_stays_one(tmp_path):
    cast = make_team()
    raw = document()
    folder = write_folder(tmp_path / "sent", raw, {**default_files(raw), "code/hello/tool.sh": "#!/bin/sh\n"})
    (folder / "code" / "hello" / "tool.sh").chmod(0o755)
    workflow = import_workflow(cast.team, cast.editor, folder)
    mode = (places.places_of(workflow).code / "hello" / "tool.sh").stat().st_mode
    assert stat.S_IMODE(mode) == 0o770


def test_an_update_replaces_code_and_keeps_what_was_learned():
    cast = make_team()
    raw = document("one")
    workflow = make_workflow(
        cast.team, cast.editor, raw, {"code/hello/old.py": "", "learnings/hello/seen.md": "as sent"}
    )
    where = places.places_of(workflow)
    (where.learnings / "hello" / "seen.md").write_text("learned since")
    report = Report()
    import_workflow(
        cast.team,
        cast.owner,
        archives.zipped(
            {"code/hello/main.py": "new", "learnings/hello/seen.md": "as sent", "learnings/hello/more.md": "more"},
            raw=document("one", title="Another title"),
        ),
        report=report,
    )
    workflow.refresh_from_db()
    assert (workflow.title, workflow.owner) == ("Another title", cast.editor)
    assert (where.code / "hello" / "main.py").read_text() == "new"
    assert not (where.code / "hello" / "old.py").exists()
    assert (where.learnings / "hello" / "seen.md").read_text() == "learned since"
    assert (where.learnings / "hello" / "more.md").read_text() == "more"
    assert report.kept == ["learnings/hello/seen.md"]
    assert not report.created


def test_an_update_goes_through_no_link_that_a_step_planted(tmp_path):
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, document("one"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (places.places_of(workflow).learnings / "hello").symlink_to(outside)
    with pytest.raises(Exception, match="hello"):
        import_workflow(
            cast.team,
            cast.editor,
            archives.zipped({"code/hello/main.py": "", "learnings/hello/x.md": "x"}, raw=document("one")),
        )
    assert list(outside.iterdir()) == []


def test_a_slug_that_another_import_took_meanwhile_is_said_to_be_taken(monkeypatch):
    cast = make_team()
    target = importing._target

    def late(*given):
        found = target(*given)
        monkeypatch.setattr(importing, "_target", target)
        make_workflow(cast.team, cast.editor, document("one"))
        return found

    monkeypatch.setattr(importing, "_target", late)
    with pytest.raises(ImportRefused, match="being imported by someone else") as refused:
        make_workflow(cast.team, cast.editor, document("one"))
    assert refused.value.status == 409


def test_another_refusal_of_the_database_is_not_said_to_be_another_import(monkeypatch):
    class Section(BrokenSection):
        def load(self, workflow, document, by, prepared):
            Variable.objects.create(workflow=workflow, name="A", value=None)

    cast = make_team()
    monkeypatch.setattr(portable, "sections", lambda: (Section(),))
    with pytest.raises(IntegrityError):
        make_workflow(cast.team, cast.editor, document("one"))
    assert not Workflow.objects.filter(slug="one").exists()


def test_a_variable_without_a_value_is_refused_by_its_path():
    cast = make_team()
    with pytest.raises(DocumentNotValid, match=r"\$\.variables\[0\]\.value"):
        make_workflow(cast.team, cast.editor, document("one", variables=[{"name": "A", "value": None}]))


def test_the_same_plan_again_makes_no_revision_and_another_one_does():
    cast = make_team()
    raw = document("one")
    for _ in range(2):
        workflow = make_workflow(cast.team, cast.editor, raw)
    assert PlanRevision.objects.filter(workflow=workflow).count() == 1
    two = document("one", steps=[step(), step("second")])
    workflow = make_workflow(cast.team, cast.editor, two)
    assert definition.load(workflow).revision == 2
    assert [s.id for s in definition.plan_at(workflow.pk, 1).steps] == ["hello"]


def test_a_code_layout_is_kept_for_good():
    cast = make_team()
    make_workflow(cast.team, cast.editor, document("one"))
    with pytest.raises(ImportRefused, match="layout is kept") as refused:
        make_workflow(cast.team, cast.editor, document("one", code_layout_version=0))
    assert refused.value.status == 409


def test_an_old_contract_is_taken_in_but_not_current():
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, document("old", contract_version="1.0.43"))
    assert not definition.is_current(workflow)


class BrokenSection:
    """Stands for an app whose part of a document cannot be saved."""

    SECTION = "triggers"

    def prepare(self, workflow, sent, /):
        return contextlib.nullcontext()

    def load(self, workflow, document, by, prepared, /):
        raise ImportRefused("the part broke. Nothing was imported.")

    def dump(self, workflow, /):
        return None


def test_a_failure_after_the_files_were_swapped_takes_everything_back(monkeypatch):
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, document("one"), {"code/hello/main.py": "old"})
    where = places.places_of(workflow)
    before = sorted(str(path) for path in where.root.rglob("*"))
    monkeypatch.setattr(portable, "sections", lambda: (BrokenSection(),))
    with pytest.raises(ImportRefused, match="the part broke"):
        import_workflow(
            cast.team,
            cast.editor,
            archives.zipped(
                {"code/hello/main.py": "new", "learnings/x.md": "x", "requirements.txt": "six\n"},
                raw=document("one", title="new"),
            ),
        )
    workflow.refresh_from_db()
    assert workflow.title == "A workflow"
    assert (where.code / "hello" / "main.py").read_text() == "old"
    assert sorted(str(path) for path in where.root.rglob("*")) == before


def test_a_failure_leaves_nothing_of_a_new_workflow(monkeypatch):
    cast = make_team()
    monkeypatch.setattr(portable, "sections", lambda: (BrokenSection(),))
    with pytest.raises(ImportRefused):
        import_workflow(cast.team, cast.editor, archives.zipped())
    folder = places.data_places().root / "workspaces" / str(cast.team.pk)
    assert list(folder.iterdir()) == []
    assert not Workflow.objects.filter(team=cast.team).exists()


def test_what_imports_leave_aside_is_forgotten_after_a_day(monkeypatch):
    cast = make_team()
    raw = document("one")
    workflow = make_workflow(cast.team, cast.editor, raw)
    make_workflow(cast.team, cast.editor, raw)
    root = places.places_of(workflow).root
    killed = root.parent / ".staging-of-a-killed-import"
    killed.mkdir()
    assert len(list((root / "replaced").iterdir())) == 1
    monkeypatch.setattr(importing, "KEEP_S", -1)
    make_workflow(cast.team, cast.editor, raw)
    assert list((root / "replaced").iterdir()) == []
    assert not killed.exists()


def test_the_command_imports_and_says_what_it_dropped(tmp_path):
    cast = make_team()
    raw = document("by-hand")
    folder = write_folder(tmp_path / "sent", raw, {**default_files(raw), "README.md": "x"})
    out = StringIO()
    call_command("import_workflow", str(folder), team=cast.team.slug, user=cast.editor.username, stdout=out)
    assert "Made by-hand: revision 1, 2 files." in out.getvalue()
    assert "README.md" in out.getvalue()


def test_the_command_lists_each_place_that_is_wrong(tmp_path):
    cast = make_team()
    folder = write_folder(tmp_path / "sent", document(steps=[step(colour="red")]), {})
    with pytest.raises(CommandError, match=r"\$\.plan\.steps\[0\]\.colour"):
        call_command("import_workflow", str(folder), team=cast.team.slug, user=cast.editor.username)


def test_an_update_says_whether_code_and_plan_changed_and_leaves_a_trace(tmp_path):
    cast = make_team()
    raw = document("by-hand")

    def sent(files, raw=raw):
        out = StringIO()
        folder = write_folder(tmp_path / str(len(list(tmp_path.iterdir()))), raw, {**default_files(raw), **files})
        call_command("import_workflow", str(folder), team=cast.team.slug, user=cast.editor.username, stdout=out)
        return out.getvalue()

    changes = Audit.objects.filter(action="code.changed", team=cast.team)
    sent({})
    assert "code unchanged, plan unchanged (revision 1)" in sent({})
    assert not changes.exists()
    assert "code changed, plan unchanged (revision 1)" in sent({"code/hello/main.py": "print(2)\n"})
    found = changes.get()
    workflow = Workflow.objects.get(team=cast.team, slug="by-hand")
    assert found.object_id == str(workflow.pk)
    assert found.data["before"] != found.data["after"] == code_tree(places.places_of(workflow).code).digest
    two = document("by-hand", steps=[step(), step("second")])
    assert "plan changed (revision 2)" in sent({}, two)
    assert "requirements changed" in sent({"requirements.txt": "six\n"}, two)


def test_the_command_says_each_place_that_is_wrong_once_and_with_one_full_stop(tmp_path):
    cast = make_team()
    folder = write_folder(tmp_path / "sent", document(steps=[step(colour="red", shape="round")]), {})
    with pytest.raises(CommandError) as refused:
        call_command("import_workflow", str(folder), team=cast.team.slug, user=cast.editor.username)
    text = str(refused.value)
    assert text.count("[0].colour") == text.count("[0].shape") == 1, text
    assert ".." not in text.replace("...", ""), text
