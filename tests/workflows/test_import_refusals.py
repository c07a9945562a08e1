"""What an archive or a folder may not be, and that nothing is left behind by one that is refused."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from pathlib import Path

import pytest
from django.conf import settings

from apps.accounts.errors import Forbidden, Refused
from apps.workflows import bundle
from apps.workflows.actions import import_workflow
from apps.workflows.models import Variable, Workflow
from tests.factories import document, make_team, step, write_folder
from tests.workflows import archives

pytestmark = pytest.mark.django_db


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} if folder.exists() else set()


def refusal(source: Path | bytes) -> Refused:
    """Import it as an editor of a fresh team; the refusal, after seeing that nothing was left behind."""
    cast = make_team()
    workspaces = settings.PULSE_DATA / "workspaces" / str(cast.team.pk)
    with pytest.raises(Refused) as refused:
        import_workflow(cast.team, cast.editor, source)
    assert everything_below(workspaces) == set()
    assert not Workflow.objects.filter(team=cast.team).exists()
    assert not Variable.objects.exists()
    assert "othing was" in refused.value.detail
    return refused.value


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("/etc/cron.d/x", "absolute_path"),
        ("C:/windows/x", "absolute_path"),
        ("code\\..\\x", "absolute_path"),
        ("../x", "path_escapes"),
        ("code/../../x", "path_escapes"),
        ("code/hello/..", "path_escapes"),
        ("code//x", "bad_name"),
        ("code/./x", "bad_name"),
        ("code/a\nb", "bad_name"),
        ("code/" + "n" * 300, "bad_name"),
        ("code/" + "d/" * 40 + "x", "bad_name"),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(name, code):
    assert refusal(archives.zipped({name: "x"})).code == code


def test_a_name_with_a_nul_is_refused():
    good = archives.zipped({"code/hello/mainXpy": "x"})
    assert refusal(good.replace(b"code/hello/mainXpy", b"code/hello/main\0py")).code in {"bad_name", "bad_archive"}


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        (archives.LINK, "not_regular"),
        (archives.DEVICE, "not_regular"),
        (archives.PIPE, "not_regular"),
        (archives.SET_UID, "bad_mode"),
    ],
    ids=["link", "device", "pipe", "set-uid"],
)
def test_an_entry_that_is_no_plain_file_is_refused(mode, code):
    assert refusal(archives.zipped(odd=[("code/hello/x", b"hello/main.py", mode)])).code == code


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name_are_refused():
    twice = archives.zipped({"code/hello/main.py": "1"}, odd=[("code/hello/main.py", b"2", 0o100644)])
    assert refusal(twice).code == "duplicate_name"


def test_names_that_are_one_in_another_spelling_are_refused():
    assert (
        refusal(archives.zipped({"code/hello/\u00e9.py": "1", "code/hello/e\u0301.py": "2"})).code == "duplicate_name"
    )


def test_a_name_that_is_both_file_and_folder_is_refused():
    assert refusal(archives.zipped({"code/hello": "1", "code/hello/main.py": "2"})).code == "duplicate_name"


def test_a_bomb_is_stopped_by_what_comes_out_of_it():
    assert refusal(archives.zipped({"code/hello/zeros": b"\0" * (64 * 1024 * 1024)})).code == "bomb"


def test_a_header_that_lies_about_the_size_does_not_help():
    data = bytearray(archives.zipped({"code/hello/zeros": b"\0" * (32 * 1024 * 1024)}))
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = data.rindex(mark)
        data[place + offset : place + offset + 4] = struct.pack("<I", 10)
    assert refusal(bytes(data)).code in {"bomb", "bad_archive"}


def test_entries_that_share_their_bytes_are_refused():
    assert refusal(archives.overlapping()).code == "bomb"


def test_too_many_files_are_refused(monkeypatch):
    monkeypatch.setattr(bundle, "MAX_FILES", 10)
    assert refusal(archives.zipped({f"code/hello/{n}.py": "" for n in range(20)})).code == "too_many_files"


def test_a_hundred_thousand_entries_are_refused_before_any_is_unpacked():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(bundle.MAX_ENTRIES + 1):
            archive.writestr(f"code/{number}", b"")
    assert refusal(out.getvalue()).code == "too_many_files"


def test_a_file_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(bundle, "MAX_FILE_BYTES", 1000)
    assert refusal(archives.zipped({"code/hello/big": os.urandom(5000)})).code == "too_large"


def test_all_together_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(bundle, "MAX_BYTES", 3000)
    files = {f"code/hello/{n}": os.urandom(900) for n in range(5)}
    assert refusal(archives.zipped(files)).code == "too_large"


@pytest.mark.parametrize("data", [b"", b"PK", b"no zip at all" * 100])
def test_what_is_no_zip_is_refused(data):
    assert refusal(data).code == "bad_archive"


def test_a_damaged_entry_is_refused():
    data = bytearray(archives.zipped({"code/hello/main.py": b"x" * 5000}, compression=zipfile.ZIP_STORED))
    place = data.index(b"xxxxxxxx")
    data[place] = ord("y")
    assert refusal(bytes(data)).code == "bad_archive"


def test_without_a_document_it_is_refused():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("code/hello/main.py", "")
    assert refusal(out.getvalue()).code == "document_missing"


def test_an_unknown_key_is_refused_with_its_path():
    refused = refusal(archives.zipped(raw=document(steps=[step(colour="red")])))
    assert refused.code == "document_refused"
    assert [field.path for field in refused.fields] == ["$.plan.steps[0].colour"]


def test_what_this_release_cannot_honour_is_refused_as_such():
    schedule = {"name": "daily", "cron": "0 6 * * *", "timezone": "UTC", "groups": ["default"]}
    refused = refusal(archives.zipped(raw=document(schedules=[schedule])))
    assert refused.code == "not_supported_yet"
    assert refused.fields[0].path.startswith("$.schedules")


@pytest.mark.parametrize("text", [b'{"slug": "a", "slug": "b"}', b'{"n": NaN}', b"[1]", b"\xff", b"[" * 100_000])
def test_a_document_that_is_no_strict_json_is_refused(text):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("workflow.json", text)
    assert refusal(out.getvalue()).status == 422


@pytest.mark.parametrize("role", ["operator", "viewer", "outsider"])
def test_only_editors_and_owners_import(role):
    cast = make_team()
    with pytest.raises(Forbidden, match="Nothing was imported"):
        import_workflow(cast.team, getattr(cast, role), archives.zipped())
    assert not Workflow.objects.filter(team=cast.team).exists()


# --- Folders --------------------------------------------------------------------------------------------------
def folder_with(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "sent", document(), {"code/hello/main.py": "print(1)\n"})


def test_a_link_in_a_folder_is_refused(tmp_path):
    folder = folder_with(tmp_path)
    (folder / "code" / "hello" / "link.py").symlink_to("main.py")
    assert refusal(folder).code == "not_regular"


def test_a_linked_folder_is_refused(tmp_path):
    folder = folder_with(tmp_path)
    (folder / "code" / "shared").symlink_to("/etc")
    assert refusal(folder).code == "not_regular"


def test_a_hard_link_in_a_folder_is_refused(tmp_path):
    folder = folder_with(tmp_path)
    os.link(folder / "code" / "hello" / "main.py", folder / "code" / "hello" / "twin.py")
    assert refusal(folder).code == "not_regular"


def test_a_pipe_in_a_folder_is_refused_without_waiting(tmp_path):
    folder = folder_with(tmp_path)
    os.mkfifo(folder / "code" / "hello" / "pipe")
    assert refusal(folder).code == "not_regular"


def test_a_set_uid_file_in_a_folder_is_refused(tmp_path):
    folder = folder_with(tmp_path)
    (folder / "code" / "hello" / "main.py").chmod(0o4755)
    assert refusal(folder).code == "bad_mode"
