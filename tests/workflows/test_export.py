"""An export imports again, and holds neither secrets nor what runs left."""

from __future__ import annotations

import io
import json
import os
import zipfile
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from apps.workflows import actions, definition, places
from apps.workflows.actions import import_workflow
from apps.workflows.exporting import export_workflow
from tests.factories import document, make_team, make_workflow, step

pytestmark = pytest.mark.django_db
FILES = {
    "code/shared/util.py": "X = 1\n",
    "learnings/_global/a.md": "learned",
    "knowledgebase/b.md": "known",
    "requirements.txt": "# none\n",
}


def whole_document():
    return document(
        "travels",
        objective="to travel",
        steps=[step(secrets=["TOKEN"]), step("second")],
        secrets=["TOKEN"],
        variables=[{"name": "A", "value": {"deep": [1, None, "ü"]}, "description": "d"}],
        groups=[{"name": "default", "values": {"A": 2}, "enabled": False}],
        settings={"max_concurrent_runs": 2},
    )


def exported(workflow, by, **options):
    out = io.BytesIO()
    report = export_workflow(workflow, out, by=by, **options)
    return out.getvalue(), report


def names_in(data: bytes) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(data)).namelist())


def test_what_was_exported_imports_as_the_same_workflow():
    cast, other = make_team(), make_team()
    workflow = make_workflow(cast.team, cast.editor, whole_document(), FILES)
    data, _ = exported(workflow, cast.editor)
    again = import_workflow(other.team, other.editor, data)
    one, two = definition.load(workflow), definition.load(again)
    assert (one.plan, one.variables, one.groups, one.settings) == (two.plan, two.variables, two.groups, two.settings)
    assert one.secret_names == two.secret_names
    for name, text in FILES.items():
        assert (places.places_of(again).root / name).read_text() == text


def test_the_same_workflow_gives_the_same_bytes():
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, whole_document(), FILES)
    assert exported(workflow, cast.editor)[0] == exported(workflow, cast.editor)[0]


def test_it_holds_names_of_secrets_and_no_value():
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, whole_document(), FILES)
    actions.set_secret(cast.team, name="TOKEN", value="canary-4711-value", by=cast.editor)
    data, _ = exported(workflow, cast.editor)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        everything = b"".join(archive.read(name) for name in archive.namelist())
        raw = json.loads(archive.read("workflow.json"))
    assert b"canary-4711-value" not in everything
    assert raw["secrets"] == ["TOKEN"]


def test_it_holds_nothing_of_runs_deliveries_or_the_database():
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, whole_document(), FILES)
    where = places.places_of(workflow)
    for path in (where.run("r") / "out.txt", where.delivery("r"), where.database, where.assets / "chart.png"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("left by a run")
    data, _ = exported(workflow, cast.editor)
    tops = {name.split("/")[0] for name in names_in(data)}
    assert tops == {"workflow.json", "requirements.txt", "code", "learnings", "knowledgebase"}


def test_assets_go_along_only_on_request():
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, whole_document(), {**FILES, "assets/logo.svg": "<svg/>"})
    assert "assets/logo.svg" not in names_in(exported(workflow, cast.editor)[0])
    assert "assets/logo.svg" in names_in(exported(workflow, cast.editor, with_assets=True)[0])


def test_links_and_pipes_that_a_step_left_are_left_out_and_named(tmp_path):
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, whole_document(), FILES)
    (tmp_path / "host-secret").write_text("of the host")
    code = places.places_of(workflow).code
    (code / "hello" / "leak.py").symlink_to(tmp_path / "host-secret")
    os.mkfifo(code / "hello" / "pipe")
    os.link(code / "shared" / "util.py", code / "hello" / "twin.py")
    data, report = exported(workflow, cast.editor)
    assert {"code/hello/leak.py", "code/hello/pipe", "code/hello/twin.py"} <= set(report.left_out)
    assert b"of the host" not in data
    assert not names_in(data) & set(report.left_out)


def test_the_command_writes_a_new_file_only(tmp_path):
    cast = make_team()
    workflow = make_workflow(cast.team, cast.editor, whole_document(), FILES)
    target = tmp_path / "out.zip"
    out = StringIO()
    call_command("export_workflow", workflow.slug, team=cast.team.slug, to=target, stdout=out)
    assert "workflow.json" in names_in(target.read_bytes())
    with pytest.raises(CommandError, match="is there already"):
        call_command("export_workflow", workflow.slug, team=cast.team.slug, to=target)
    with pytest.raises(CommandError, match="no workflow"):
        call_command("export_workflow", "none", team=cast.team.slug, to=tmp_path / "b.zip")
