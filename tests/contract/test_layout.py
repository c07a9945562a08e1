"""The rules of the house that no linter knows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP = {
    ".ci", ".gitignore", "Makefile", "README.md", "LICENSE", "apps", "docs", "lock", "manage.py", "platform",
    "pyproject.toml", "static", "templates", "tests",
}  # fmt: skip


def tracked(*patterns: str) -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=True, text=True)
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_the_top_level_holds_what_it_should() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= TOP


def test_platform_is_a_source_root_and_no_package() -> None:
    loose = [path.name for path in (ROOT / "platform").iterdir() if path.is_file()]
    assert loose == []


def test_the_standard_library_keeps_its_platform_module() -> None:
    code = "import platform, config, engine; print(platform.python_version())"
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", "PATH": ""}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert found.stdout.startswith("3.")


def test_no_file_bears_an_address_of_a_package_registry() -> None:
    hosts = [
        ".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"))
    ]
    found = [str(path) for path in tracked() if any(host.encode() in path.read_bytes() for host in hosts)]
    assert found == []


def test_no_file_reads_what_only_a_developer_has() -> None:
    private = ["/".join(parts).encode() for parts in (("..", "shared"), ("", "work", "main", ""), ("", "root", "."))]
    found = [str(path) for path in tracked() if any(name in path.read_bytes() for name in private)]
    assert found == []


def test_only_the_queue_knows_django_q() -> None:
    importers = [
        str(path.relative_to(ROOT))
        for path in tracked("apps/*.py", "platform/*.py")
        if re.search(r"^\s*(?:from|import) django_q\b", path.read_text(), re.MULTILINE)
    ]
    assert importers in ([], ["apps/runs/queue.py"])


@pytest.mark.parametrize("path", tracked("templates/*.html"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_template_never_marks_text_as_safe(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\|\s*safe\b|autoescape off", text)
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+=", text), "inline script or style"


def test_python_never_marks_text_as_safe_but_where_it_is_listed() -> None:
    allowed = {"apps/runs/markdown.py"}
    found = {
        str(path.relative_to(ROOT))
        for path in tracked("apps/*.py", "platform/*.py")
        if re.search(r"\bmark_safe\b|SafeString\(", path.read_text())
    }
    assert found <= allowed


def test_files_stay_readable() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in tracked("*.py")
        if "migrations" not in path.parts and (lines := path.read_text().count("\n")) > 400
    }
    assert long == {}
