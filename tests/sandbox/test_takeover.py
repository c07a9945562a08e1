"""What a step left is taken over: plain files as copies under their names, all else by name alone, within bounds."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from engine.places import AttemptPlaces
from engine.sandbox import tree
from engine.sandbox.errors import Absent, NotRegular
from engine.sandbox.files import DEEPEST
from engine.sandbox.limits import MEGABYTE, Limits
from engine.sandbox.takeover import Kept, take_over
from tests.sandbox.test_files import deep


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPlaces:
    places = AttemptPlaces(tmp_path / "1")
    places.out.mkdir(parents=True)
    return places


def taken(attempt: AttemptPlaces, **limits: int) -> Kept:
    return take_over(attempt, None, Limits(**limits))


def left(attempt: AttemptPlaces) -> list[str]:
    return sorted(path.name for path in attempt.root.iterdir())


def test_files_are_new_and_say_the_same_under_the_same_names(attempt: AttemptPlaces) -> None:
    files = {b"a": b"1", b"empty": b"", b"in/ner/b": b"2", b"\xff": b"3", b"two\nlines": b"4", b"n" * 250: b"5"}
    before = set()
    for name, data in files.items():
        path = Path(os.fsdecode(bytes(attempt.out) + b"/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        before.add(path.stat().st_ino)
    with open(attempt.out / "a", "r+b") as held, taken(attempt) as kept:
        held.write(b"other")
        held.flush()
        assert {os.fsencode(entry.relative): entry.size for entry in kept.listing() if entry.kind == "file"} == {
            name: len(data) for name, data in files.items()
        }
        assert not before & {entry.inode for entry in kept.listing()}
        assert kept.read("a", 10) == b"1"
        assert kept.read("in/ner/b", 10) == b"2"
        assert (kept.odd, kept.over) == ({}, False)
    assert left(attempt) == ["out"]


def test_what_is_no_plain_file_is_named_and_not_kept(attempt: AttemptPlaces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(attempt.out)
    Path("one").write_text("xx")
    os.link("one", "two")
    os.mkfifo("pipe")
    os.symlink("/etc", "link")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door")
        kept = taken(attempt)
    with kept:
        assert kept.listing() == []
        assert {name: (odd.size, odd.refusal.reason) for name, odd in kept.odd.items()} == {
            "one": (2, "result_not_regular"),
            "two": (2, "result_not_regular"),
            **dict.fromkeys(("pipe", "link", "door"), (0, "result_not_regular")),
        }
        for name in ("one", "pipe", "link", "link/passwd"):
            with pytest.raises(NotRegular):
                kept.open(name, 10)
        with pytest.raises(Absent):
            kept.open("linked", 10)


def test_a_sparse_file_stays_one_and_its_holes_count_nothing(attempt: AttemptPlaces) -> None:
    with open(attempt.out / "sparse", "wb") as file:
        for at in (0, 300 * MEGABYTE):
            file.seek(at)
            file.write(b"x" * 4096)
        file.truncate(2000 * MEGABYTE)
    (attempt.out / "hole").touch()
    os.truncate(attempt.out / "hole", 2000 * MEGABYTE)
    with taken(attempt, output_mb=1) as kept:
        assert [entry.size for entry in kept.listing()] == [2000 * MEGABYTE] * 2
        assert sum(entry.blocks for entry in kept.listing()) * 512 <= 64 * 1024
        assert not kept.over
        with kept.open("sparse", 2000 * MEGABYTE) as file:
            file.seek(300 * MEGABYTE - 1)
            assert file.read(3) == b"\0xx"


def test_copying_ends_at_the_limits_and_keeps_no_part_of_a_file(attempt: AttemptPlaces) -> None:
    for name in ("a", "b", "c"):
        (attempt.out / name).write_bytes(b"x" * 400 * 1024)
    with taken(attempt, output_mb=1) as kept:
        assert [entry.size for entry in kept.listing()] == [400 * 1024] * 2
        assert kept.over
    with taken(attempt, output_files=1) as kept:
        assert len(kept.listing()) == 1
        assert kept.over
    assert left(attempt) == ["out"]


def test_a_tree_of_any_depth_is_kept_as_far_as_its_names_are_taken(attempt: AttemptPlaces) -> None:
    deep(attempt.out, 100)
    with taken(attempt) as kept:
        assert len(kept.listing()) == DEEPEST
        assert [odd.refusal.reason for odd in kept.odd.values()] == ["result_escapes"]
    assert left(attempt) == ["out"]


def test_an_empty_folder_goes_and_can_be_filled_by_nobody_who_holds_it(attempt: AttemptPlaces) -> None:
    held = os.open(attempt.out, os.O_RDONLY)
    with taken(attempt) as kept, pytest.raises(FileNotFoundError):
        os.open("late", os.O_CREAT | os.O_WRONLY, dir_fd=held)
    os.close(held)
    assert kept.listing() == left(attempt) == []
    with pytest.raises(Absent):
        kept.read("late", 10)


def test_when_nothing_can_be_taken_over_nothing_half_done_stays(attempt: AttemptPlaces) -> None:
    (attempt.out / "a").write_text("x")
    (attempt.root / "out.old").mkdir()
    (attempt.root / "out.old" / "in the way").touch()
    with pytest.raises(OSError, match="not empty"):
        taken(attempt)
    assert left(attempt) == ["out", "out.old"]


def test_emptying_gives_up_on_what_appears_for_ever(attempt: AttemptPlaces) -> None:
    deep(attempt.out, 200)
    assert 100 <= tree.empty(os.open(attempt.out, os.O_RDONLY), 100) < 200
    assert len(list(attempt.out.iterdir())) == 1
