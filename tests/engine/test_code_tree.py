"""The digest of a code tree: the same for the same files, never fooled, cheap when nothing changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import digests
from engine.sandbox.errors import TooLarge
from engine.sandbox.files import Beneath


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "main.py").write_text("print(1)\n")
    (tmp_path / "b.py").write_text("x = 1\n")
    return tmp_path


def test_it_lists_files_with_their_digests(code: Path) -> None:
    assert sorted(digests.code_tree(code).files) == ["a/main.py", "b.py"]


def test_it_changes_with_content_name_and_mode(code: Path) -> None:
    seen = {digests.code_tree(code).digest}
    (code / "b.py").write_text("x = 2\n")
    seen.add(digests.code_tree(code).digest)
    (code / "b.py").rename(code / "c.py")
    seen.add(digests.code_tree(code).digest)
    (code / "c.py").chmod(0o755)
    seen.add(digests.code_tree(code).digest)
    (code / "link").symlink_to("c.py")
    seen.add(digests.code_tree(code).digest)
    assert len(seen) == 5


def test_it_sees_a_change_that_keeps_size_and_time(code: Path) -> None:
    before = digests.code_tree(code).digest
    status = (code / "b.py").stat()
    (code / "b.py").write_text("x = 9\n")
    os.utime(code / "b.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digests.code_tree(code).digest != before


def test_a_link_is_never_followed(code: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = tmp_path_factory.mktemp("host") / "secret"
    secret.write_text("one")
    (code / "link.py").symlink_to(secret)
    before = digests.code_tree(code)
    secret.write_text("another")
    assert digests.code_tree(code).digest == before.digest
    assert before.odd == ("link.py",)


def test_compiled_files_are_no_part_of_it(code: Path) -> None:
    before = digests.code_tree(code).digest
    (code / "__pycache__").mkdir()
    (code / "__pycache__" / "b.cpython-311.pyc").write_bytes(b"x")
    after = digests.code_tree(code)
    assert after.digest == before
    assert after.caches == ("__pycache__/b.cpython-311.pyc",)


def test_files_that_did_not_change_are_not_read_again(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests.code_tree(code)
    opened: list[str] = []
    original = Beneath.open

    def counting(self: Beneath, relative: str, limit: int | None = None) -> object:
        opened.append(relative)
        return original(self, relative, limit)

    monkeypatch.setattr(Beneath, "open", counting)
    digests.code_tree(code)
    (code / "b.py").write_text("y = 2\n")
    digests.code_tree(code)
    assert opened == ["b.py"]


def test_what_there_is_no_room_for_stands_there_by_its_size_and_times(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "LARGEST_READ", 100)
    (code / "a" / "huge.bin").write_bytes(bytes(200))
    before = digests.code_tree(code)
    assert before.unread == ("a/huge.bin",)
    assert len(before.files["b.py"]) == 64
    (code / "a" / "huge.bin").write_bytes(bytes(199) + b"x")
    after = digests.code_tree(code)
    assert after.digest != before.digest
    assert after.digest == digests.code_tree(code).digest


def test_reading_stops_when_it_is_told_to(code: Path) -> None:
    (code / "new.py").write_text("x = 3\n")
    with pytest.raises(digests.Stopped):
        digests.code_tree(code, lambda: True)
    assert "new.py" in digests.code_tree(code).files


def test_a_file_that_grows_while_it_is_read_is_given_up(code: Path) -> None:
    (code / "b.py").write_bytes(bytes(3 * 1024 * 1024))

    def grow() -> bool:
        with (code / "b.py").open("ab") as file:
            file.write(bytes(2 * 1024 * 1024))
        return False

    with Beneath(code) as folder, pytest.raises(TooLarge):
        digests.of_file(folder, "b.py", 3 * 1024 * 1024, grow)
