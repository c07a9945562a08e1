"""Reading what a step left behind: nothing but plain files, within a bound, below the root; and putting files there."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.sandbox import beneath, files, tree
from engine.sandbox.errors import Absent, Escapes, FileRefused, NotRegular, TooLarge
from engine.sandbox.files import Beneath
from engine.sandbox.tree import Kind
from tests.sandbox.bench import Bench


@pytest.fixture(params=["openat2", "walk"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beneath]:
    """A root, with openat2 and with the walk that stands in for it on older kernels."""
    if request.param == "walk":
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    root = tmp_path / "out"
    root.mkdir()
    (tmp_path / "secret").write_text("the platform's own")
    with Beneath(root) as opened:
        yield opened


def test_a_plain_file_is_read(folder: Beneath) -> None:
    (folder.root / "sub").mkdir()
    (folder.root / "sub" / "result.json").write_bytes(b"{}")
    assert folder.read("sub/result.json", 10) == b"{}"


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "plain", "absent", "loop"])
def test_a_link_is_never_followed_wherever_it_leads(folder: Beneath, target: str) -> None:
    (folder.root / "plain").write_text("x")
    (folder.root / "loop").symlink_to(target)
    with pytest.raises(NotRegular):
        folder.read("loop", 100)


@pytest.mark.parametrize("target", ["..", "/etc", "sub"])
def test_a_link_on_the_way_is_never_followed(folder: Beneath, target: str) -> None:
    (folder.root / "sub").mkdir()
    (folder.root / "sub" / "secret").write_text("x")
    (folder.root / "way").symlink_to(target)
    with pytest.raises(NotRegular):
        folder.read("way/secret", 100)
    with pytest.raises(NotRegular):
        folder.write("way/planted", b"x")
    with pytest.raises(NotRegular):
        folder.make_folder("way/made")
    assert not (folder.root.parent / "planted").exists()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device"])
def test_what_is_no_plain_file_is_refused_at_once(folder: Beneath, kind: str) -> None:
    path = folder.root / "odd"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        if os.geteuid() != 0:
            pytest.skip("only root makes devices")
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.relpath(path))
    with pytest.raises(NotRegular):
        folder.read("odd", 100)


def test_a_file_with_a_second_name_is_refused(folder: Beneath) -> None:
    (folder.root / "one").write_text("x")
    os.link(folder.root / "one", folder.root / "two")
    with pytest.raises(NotRegular):
        folder.read("two", 100)


def test_a_file_of_a_stranger_is_refused(folder: Beneath) -> None:
    (folder.root / "one").write_text("x")
    with Beneath(folder.root, owners={os.geteuid() + 1}) as strict, pytest.raises(NotRegular):
        strict.read("one", 100)


def test_a_huge_sparse_file_is_refused_by_its_size(folder: Beneath) -> None:
    with (folder.root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooLarge):
        folder.read("sparse", 1000)
    assert folder.usage().bytes < 1 << 20


def test_a_file_that_grows_is_read_one_byte_too_far_at_most(folder: Beneath) -> None:
    path = folder.root / "grows"
    path.write_bytes(b"x" * 1000)
    with folder.open("grows", 1000) as opened:
        with path.open("ab") as file:
            file.write(b"x" * 5000)
        assert len(opened.read(1001)) == 1001
    with pytest.raises(TooLarge):
        folder.read("grows", 1000)


def test_a_file_that_has_more_than_it_says_is_given_up_at_the_bound() -> None:
    """Files of /proc say that they are empty, like one that is about to grow."""

    def bytes_read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    with Beneath("/proc") as proc:
        before = bytes_read()
        with pytest.raises(TooLarge):
            proc.read("kallsyms", 1000)
        assert bytes_read() - before < 100_000


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "/etc/passwd",
            "..",
            "../secret",
            "a/../../secret",
            "a//b",
            "./a",
            "a/.",
            "a\nb",
            "a\0b",
            "a\x1b[31mb",
            "a\x9b",
        ),
        *("\udcff", "x" * 200, "é" * 100, "/".join("d" * 33)),
    ],
)
def test_names_that_are_no_names_are_refused(folder: Beneath, name: str) -> None:
    for action in (lambda: folder.read(name, 10), lambda: folder.write(name, b""), lambda: folder.make_folder(name)):
        with pytest.raises(Escapes):
            action()
    assert (folder.root.parent / "secret").read_text() == "the platform's own"


def test_what_is_absent_is_said_to_be(folder: Beneath, tmp_path: Path) -> None:
    with pytest.raises(Absent):
        folder.read("absent", 10)
    assert folder.kind("absent") is None
    with pytest.raises(Absent):
        Beneath(tmp_path / "nowhere")


@pytest.mark.parametrize("target", ["out", "file"])
def test_a_root_that_is_a_link_or_a_file_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "root").symlink_to(target) if target == "out" else (tmp_path / "root").write_text("")
    with pytest.raises(NotRegular):
        Beneath(tmp_path / "root")


def test_a_written_file_appears_whole_with_its_mode_and_replaces_a_link_not_its_target(folder: Beneath) -> None:
    (folder.root / "note").symlink_to("../secret")
    folder.write("note", b"mine", mode=0o640)
    assert (folder.root / "note").read_bytes() == b"mine"
    assert (folder.root / "note").stat().st_mode & 0o777 == 0o640
    assert (folder.root.parent / "secret").read_text() == "the platform's own"


def test_files_written_together_are_all_there_or_none(folder: Beneath) -> None:
    with pytest.raises(FileRefused):
        folder.write_all({"one": b"1", "absent/two": b"2"})
    assert list(folder.root.iterdir()) == []


def test_a_made_folder_has_its_mode_and_the_group_of_the_one_above(folder: Beneath) -> None:
    if os.geteuid() == 0:
        os.chown(folder.root, -1, 4321)
    folder.make_folder("a/b", 0o750)
    folder.make_folder("a/b", 0o700)
    made = (folder.root / "a" / "b").stat()
    assert made.st_mode & 0o7777 == 0o750
    assert made.st_gid == folder.root.stat().st_gid


def test_a_listing_names_everything_and_follows_nothing(folder: Beneath) -> None:
    (folder.root / "a").mkdir()
    (folder.root / "a" / "file").write_text("12345")
    (folder.root / "link").symlink_to("/etc")
    os.mkfifo(folder.root / "pipe")
    found = {entry.relative: (entry.kind, entry.size) for entry in folder.listing()}
    assert found["a/file"] == (Kind.FILE, 5)
    assert [found[name][0] for name in ("a", "link", "pipe")] == [Kind.FOLDER, Kind.LINK, Kind.OTHER]
    assert not any(name.startswith("link/") for name in found)


def test_a_listing_is_given_up_beyond_its_bound(folder: Beneath) -> None:
    for number in range(30):
        (folder.root / str(number)).touch()
    with pytest.raises(TooLarge):
        folder.listing(most=20)


def deep(root: Path, levels: int) -> None:
    """A tree deeper than any path can name."""
    current = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 20, dir_fd=current)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=current))
    os.close(current)


def test_trees_of_any_depth_are_listed_in_part_and_emptied_in_whole(folder: Beneath) -> None:
    deep(folder.root, 1500)
    assert len(folder.listing()) == files.DEEPEST + 1
    with pytest.raises(TooLarge):
        folder.usage()
    assert folder.remove_tree() >= 1500
    assert list(folder.root.iterdir()) == []


def test_many_folders_side_by_side_take_no_more_descriptors(folder: Beneath) -> None:
    for number in range(3000):
        (folder.root / str(number)).mkdir()
    assert len(folder.listing()) == folder.usage().files == 3000


def test_emptying_removes_links_and_not_what_they_lead_to(folder: Beneath) -> None:
    outside = folder.root.parent / "kept"
    outside.mkdir()
    (outside / "file").write_text("kept")
    (folder.root / "sub").mkdir()
    (folder.root / "sub" / "link").symlink_to(outside)
    (folder.root / "link").symlink_to(outside)
    (folder.root / "sub").chmod(0)
    folder.remove_tree()
    assert list(folder.root.iterdir()) == []
    assert (outside / "file").read_text() == "kept"


def test_one_folder_or_file_is_removed_by_name(folder: Beneath) -> None:
    folder.make_folder("a/b")
    folder.write("a/b/c", b"")
    folder.write("d", b"")
    folder.remove("d")
    assert folder.remove_tree("a") == 3
    assert list(folder.root.iterdir()) == []


def test_space_is_counted_by_what_lies_on_the_disk(folder: Beneath) -> None:
    (folder.root / "a").write_bytes(b"x" * 100_000)
    os.link(folder.root / "a", folder.root / "b")
    usage = folder.usage()
    assert 100_000 <= usage.bytes < 200_000
    assert usage.files == 2


def test_a_file_that_is_swapped_for_a_link_while_it_is_opened_is_never_followed(folder: Beneath) -> None:
    plain, link, name = folder.root / "plain", folder.root / "link", folder.root / "name"
    plain.write_text("mine")
    link.symlink_to("../secret")
    name.write_text("mine")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for source in (plain, link):
                try:
                    copy = folder.root / "copy"
                    copy.symlink_to("../secret") if source is link else copy.write_text("mine")
                    os.rename(copy, name)
                except OSError:
                    continue

    swapper = threading.Thread(target=swap, daemon=True)
    swapper.start()
    seen, end = set(), time.monotonic() + 1
    try:
        while time.monotonic() < end:
            try:
                seen.add(folder.read("name", 100))
            except FileRefused:
                seen.add(b"refused")
    finally:
        stop.set()
        swapper.join()
    assert b"the platform's own" not in seen
    assert seen <= {b"mine", b"", b"refused"}


def test_walking_closes_what_it_opened_though_the_caller_stops_early(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    before = os.listdir("/proc/self/fd")
    walk = tree.walk(os.open(tmp_path, os.O_RDONLY), "", 5)
    next(walk)
    walk.close()
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.sandbox
def test_what_a_real_step_left_behind_is_collected_or_refused(bench: Bench) -> None:
    script = """
import os
os.chdir("/pulse/run/out")
os.symlink("/etc/shadow", "link.json")
os.mkfifo("pipe.json")
open("plain.json", "w").write("{}")
open("closed.json", "w").write("{}")
os.chmod("closed.json", 0)
os.mkdir("closed")
open("closed/inner", "w").write("x")
os.chmod("closed", 0)
"""
    host = bench.host()
    assert bench.run(script, host=host).exit.code == 0
    with Beneath(host.attempt.out, owners={os.geteuid(), bench.runner.uid}) as out:
        assert out.read("plain.json", 10) == b"{}"
        assert out.read("closed.json", 10) == b"{}"
        for name in ("link.json", "pipe.json"):
            with pytest.raises(NotRegular):
                out.read(name, 10)
        out.remove_tree()
    assert list(host.attempt.out.iterdir()) == []
