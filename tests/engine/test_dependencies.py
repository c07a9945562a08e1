"""Dependency environments: built once from wheels by a neutral process, and a failure says what and where from."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from engine import dependencies
from engine.contract import ContractRefused
from engine.dependencies import Environment, EnvironmentFailed
from tests.runner.stage import Stage, scripted


def wheel(folder: Path, name: str, files: dict[str, str], version: str = "1.0") -> None:
    info = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)


@pytest.fixture
def index(data_root: Path) -> Path:
    folder = data_root / "index"
    folder.mkdir(mode=0o755)
    wheel(folder, "tiny", {"tiny/__init__.py": "VALUE = 42\n"})
    return folder


@pytest.fixture(autouse=True)
def operators_index(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("VAR_CANARY", "x")


def built(stage: Stage, requirements: str | None) -> Environment:
    if requirements is not None:
        stage.workflow.requirements.write_text(requirements)
    return dependencies.ensure(stage.workflow, stage.data, stage.host)


def test_without_requirements_all_share_an_empty_one(stage: Stage) -> None:
    empty = built(stage, None)
    assert empty.names == frozenset()
    assert built(stage, "# nothing\n\n").root == empty.root


def test_what_is_required_can_be_imported_in_the_sandbox_and_by_preflight(stage: Stage) -> None:
    stage.workflow.requirements.write_text("tiny==1.0\n")
    ran = stage.run("import tiny\nprint(tiny.VALUE, tiny.__file__)\n")
    assert re.fullmatch(r"42 /pulse/deps/lib/python3\.\d+/site-packages/tiny/__init__\.py\n", ran.log), ran


def test_it_is_built_once_and_kept(stage: Stage) -> None:
    first = built(stage, "tiny==1.0\n")
    mark = first.root / "mark"
    mark.touch()
    dependencies._built.clear()
    assert built(stage, "tiny==1.0\n") == first
    assert mark.exists()
    assert built(stage, "tiny>=1.0\n").root != first.root


def test_no_step_can_change_it(stage: Stage) -> None:
    stage.workflow.requirements.write_text("tiny==1.0\n")
    ran = stage.run("import tiny\nopen(tiny.__file__, 'w')\n")
    assert "Read-only file system" in ran.log
    root = built(stage, None).root
    assert {os.lstat(path).st_uid for path in [root, *root.rglob("*")]} == {os.geteuid()}


def test_a_failure_names_package_interpreter_and_index(stage: Stage, index: Path) -> None:
    with pytest.raises(EnvironmentFailed) as raised:
        built(stage, "tiny==1.0\nnot-there==3\n")
    text = str(raised.value)
    assert "not-there for Python 3." in text
    assert str(index) in text
    assert [path.name for path in stage.data.environments.iterdir() if path.is_dir()] == []


def test_a_failed_build_refuses_the_start(stage: Stage) -> None:
    stage.write({"work/main.py": "print(1)\n"})
    stage.workflow.requirements.write_text("not-there==3\n")
    with pytest.raises(ContractRefused) as raised:
        stage.resolve(scripted())
    assert (raised.value.outcome, raised.value.reason) == ("preflight_failed", "environment_failed")


def test_credentials_of_an_index_are_not_shown(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://user:hunter2hunter2@127.0.0.1:9/simple")
    with pytest.raises(EnvironmentFailed) as raised:
        built(stage, "not-there==3\n")
    assert "hunter2" not in str(raised.value)


def test_nothing_is_built_from_source(stage: Stage, index: Path, data_root: Path) -> None:
    """Building runs the package's own code, on the host."""
    data_root.chmod(0o777)
    sentinel = data_root / "sentinel"
    files = {
        "back.py": f"open({str(sentinel)!r}, 'w').write('x')\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "back"\nbackend-path = ["."]\n',
        "PKG-INFO": "Metadata-Version: 2.1\nName: src\nVersion: 1.0\n",
    }
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"src-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    (index / "src-1.0.tar.gz").write_bytes(data.getvalue())
    with pytest.raises(EnvironmentFailed, match="nothing is built from source"):
        built(stage, "src==1.0\n")
    assert not sentinel.exists()


@pytest.mark.parametrize(
    "line",
    [
        "-e .",
        "-r /etc/passwd",
        "--no-binary :all:",
        "--index-url x",
        "./local.whl",
        "/abs.whl",
        "x @ file:///etc/x.whl",
    ],
)
def test_requirements_are_names_of_packages(stage: Stage, line: str) -> None:
    with pytest.raises(EnvironmentFailed, match="only names of packages"):
        built(stage, f"tiny==1.0\n{line}\n")


def test_requirements_that_are_a_link_are_not_read(stage: Stage) -> None:
    stage.workflow.requirements.symlink_to("/etc/passwd")
    with pytest.raises(EnvironmentFailed, match="cannot be read"):
        built(stage, None)


def test_a_dependency_cannot_take_the_place_of_the_library(stage: Stage, index: Path) -> None:
    planted = "raise SystemExit('shadowed')\n"
    wheel(index, "evil", {"pulse/__init__.py": planted, "json.py": planted, "_socket.py": planted, "re.py": planted})
    stage.workflow.requirements.write_text("evil==1.0\n")
    ran = stage.run("import pulse\npulse.write_json('a.json', pulse.params())\nprint(pulse.__file__)\n")
    assert ran.log == "/pulse/lib/site/pulse/__init__.py\n", ran


def test_pth_files_of_a_dependency_are_honoured(stage: Stage, index: Path) -> None:
    wheel(index, "linked", {"linked.pth": "hidden\n", "hidden/found.py": "X = 1\n"})
    stage.workflow.requirements.write_text("linked==1.0\n")
    assert stage.run("import found\nprint(found.X)\n").log == "1\n"
